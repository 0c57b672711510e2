select r.registration, r.name, r.boot_id, r.pid_namespace, r.pid, r.process_started,
    r.lease_expires_at, r.leaving, m.partitions_max, m.reaches
from posthaste_members as m join posthaste_relays as r on r.registration = m.registration
where m.destination_id = :destination_id and r.fenced_at is null and r.lease_expires_at > :now
order by m.registration
