select i.store_id, o.epoch, o.registration, o.version, c.id, c.seq,
       coalesce(r.fenced_at is null and r.left_at is null, 0),
       case when p.id <> c.passed_id then p.seq end
from posthaste_identity as i
left join posthaste_ownership as o on o.destination_id = :destination_id and o.partition_from = 0
left join posthaste_cursors as c on c.id = o.cursor_id
left join posthaste_relays as r on r.registration = o.registration
left join posthaste_outbox as p on p.seq = c.passed_seq
