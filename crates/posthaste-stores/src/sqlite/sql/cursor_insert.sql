insert into posthaste_cursors (destination_id, seq, passed_seq, passed_id)
select :destination_id, :seq, o.seq, o.id from (select 1) left join posthaste_outbox as o on o.seq = :seq
