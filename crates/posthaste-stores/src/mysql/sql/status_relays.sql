select r.registration, r.name, r.boot_id, r.pid_namespace, r.pid, r.process_started,
    r.registered_at, r.version,
    case when r.fenced_at is not null then 'fenced' when r.lease_expires_at > :now then 'live'
        else 'expired' end,
    r.lease_expires_at, r.leaving
from posthaste_relays as r
where greatest(r.lease_expires_at, coalesce(r.fenced_at, 0)) >= :since
order by r.registered_at, r.registration
