-- One row a relay and destination that it serves or owns something of, or one without.
select r.registration, r.name, r.version, r.lease_until, r.started_at,
    r.boot_id, r.pid_namespace, r.pid, r.process_started,
    case when r.fenced_at is not null then 'fenced'
        when r.lease_until > clock_timestamp() then 'live'
        else 'expired' end as state,
    s.destination, coalesce(s.partitions, 0)::bigint as partitions, coalesce(s.epoch, 0) as epoch, s.reaches,
    coalesce(s.leaving, false) as leaving
from posthaste.relays r
left join lateral (
    select d.name as destination, o.partitions, o.epoch, m.reaches, m.leaving
    from posthaste.destinations d
    left join posthaste.members m on m.destination_id = d.id and m.registration = r.registration
    left join lateral (
        select count(*) as partitions, max(c.epoch) as epoch
        from posthaste.cursors c join posthaste.partitions p on p.cursor_id = c.id
        where c.destination_id = d.id and c.relay = r.registration
    ) o on true
    where d.state <> 'removed' and (m.registration is not null or o.partitions > 0)
) s on true
where r.lease_until > clock_timestamp() - interval '1 day'
order by r.started_at, r.registration, s.destination
