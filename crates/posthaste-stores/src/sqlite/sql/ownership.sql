select o.partition_to, o.not_before, o.registration,
       coalesce(r.fenced_at is null and r.left_at is null, 0), o.left_by, o.left_dead,
       (select l.name from posthaste_relays as l where l.registration = o.left_by),
       coalesce(r.lease_expires_at, 0), coalesce(r.lease, 0), (select coalesce(max(a.lease), 0) from posthaste_relays as a),
       o.epoch
from posthaste_ownership as o left join posthaste_relays as r on r.registration = o.registration
where o.destination_id = :destination_id and o.partition_from = 0
