update posthaste_cursors
set seq = :seq, (passed_seq, passed_id) = (select o.seq, o.id from posthaste_outbox as o where o.seq = :seq)
where id = :cursor_id and seq < :seq
