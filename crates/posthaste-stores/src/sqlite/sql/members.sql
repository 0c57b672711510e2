select r.registration, r.name, r.boot_id, r.pid_namespace, r.pid, r.process_started,
       min(r.lease_expires_at - :now, r.lease), r.leaving,
       m.partitions_max, m.reaches,
       (select coalesce(sum(o.partition_to - o.partition_from), 0) from posthaste_ownership as o
        where o.destination_id = m.destination_id and o.registration = m.registration),
       r.lease_expires_at, r.lease
from posthaste_members as m join posthaste_relays as r on r.registration = m.registration
where m.destination_id = :destination_id and r.fenced_at is null and r.left_at is null and r.lease_expires_at > :now
order by m.registration
