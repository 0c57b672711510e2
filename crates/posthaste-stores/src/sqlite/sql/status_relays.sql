select r.name, r.version,
       case when r.fenced_at is not null then 'fenced' when r.lease_expires_at > :now then 'live' else 'expired' end,
       r.lease_expires_at,
       (select coalesce(sum(o.partition_to - o.partition_from), 0) from posthaste_ownership as o
        where o.registration = r.registration)
from posthaste_relays as r
where r.left_at is null and max(r.lease_expires_at, coalesce(r.fenced_at, 0)) >= :since
order by r.registered_at, r.registration
