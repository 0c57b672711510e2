select o.epoch, o.not_before, o.registration, r.name, r.boot_id, r.pid_namespace, r.pid, r.process_started,
       r.lease_expires_at, coalesce(r.fenced_at is null and r.left_at is null and r.lease_expires_at > :now, 0)
from posthaste_ownership as o left join posthaste_relays as r on r.registration = o.registration
where o.destination_id = :destination_id and o.partition_from = 0
