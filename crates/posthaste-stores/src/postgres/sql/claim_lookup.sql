-- $1 destination's name.
select d.id, d.state, d.breaker, o.first_partition, o.last_partition, o.epoch, o.relay,
    r.fenced_at is null and r.lease_until > clock_timestamp() as live,
    coalesce(r.fenced_at is not null, true) as fenced,
    r.name, r.boot_id, r.pid_namespace, r.pid, r.process_started,
    (extract(epoch from greatest(r.lease_until - clock_timestamp(), interval '0')) * 1000000)::bigint as lease_left
from posthaste.destinations d
join posthaste.ownership o on o.destination_id = d.id
left join posthaste.relays r on r.registration = o.relay
where d.name = $1::text and d.state <> 'removed'
