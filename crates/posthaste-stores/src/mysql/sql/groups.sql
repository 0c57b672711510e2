select c.id, c.partitions, c.relay,
    coalesce(r.fenced_at is null and r.lease_expires_at > :now, 0),
    c.not_before, c.former, c.left_by, c.left_name, c.left_dead
from posthaste_cursors as c left join posthaste_relays as r on r.registration = c.relay
where c.destination_id = :destination_id
order by c.id
