select r.name, r.version, r.lease_until,
    case when r.fenced_at is not null then 'fenced'
        when r.lease_until > clock_timestamp() then 'live'
        else 'expired' end as state,
    coalesce((
        select sum(o.last_partition - o.first_partition + 1) from posthaste.ownership o
        join posthaste.destinations d on d.id = o.destination_id and d.state <> 'removed'
        where o.relay = r.registration), 0)::bigint as partitions
from posthaste.relays r
where r.lease_until > clock_timestamp() - interval '1 day'
order by r.started_at, r.registration
