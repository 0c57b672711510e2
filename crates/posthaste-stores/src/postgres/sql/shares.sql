-- Behind `asked` (one row: registration and lease_left of who renews, else none) and `looked`
-- (destinations): one row a member, or one without.
live as materialized (
    select r.registration, r.name, r.boot_id, r.pid_namespace, r.pid, r.process_started,
        coalesce(a.lease_left, (extract(epoch from r.lease_until - clock_timestamp()) * 1000000)::bigint) as lease_left
    from posthaste.relays r
    left join asked a on a.registration = r.registration
    where r.fenced_at is null and (a.registration is not null or r.lease_until > clock_timestamp())
), grouped as materialized (
    select c.id, c.destination_id, c.relay,
        (select count(*) from posthaste.partitions p where p.cursor_id = c.id) as partitions,
        (extract(epoch from greatest(c.not_before - clock_timestamp(), interval '0')) * 1000000)::bigint as wait
    from looked l
    join posthaste.cursors c on c.destination_id = l.destination_id
), counted as (
    select g.destination_id,
        sum(g.partitions) filter (where g.relay is null and g.wait = 0) as free,
        sum(g.partitions) filter (where g.relay is null and g.wait > 0) as settling,
        min(g.wait) filter (where g.relay is null and g.wait > 0) as settled_in,
        sum(g.partitions) filter (
            where g.relay is not null and g.relay not in (select registration from live)) as dead
    from grouped g
    group by g.destination_id
)
select
    (select s.value from posthaste.settings s where s.name = 'min_relay') as min_relay,
    d.name, d.state, d.paused_places, d.shares_version, d.partitions,
    d.partitions <> (select s.value::integer from posthaste.settings s where s.name = 'partitions') as recut,
    coalesce(n.free, 0)::bigint as free, coalesce(n.settling, 0)::bigint as settling, n.settled_in,
    coalesce(n.dead, 0)::bigint as dead,
    m.registration, m.relay, m.boot_id, m.pid_namespace, m.pid, m.process_started, m.lease_left,
    m.partitions_max, m.leaving, m.reaches,
    coalesce((
        select sum(g.partitions) from grouped g
        where g.destination_id = d.id and g.relay = m.registration), 0)::bigint as owned
from asked a
left join (looked l join posthaste.destinations d on d.id = l.destination_id) on true
left join counted n on n.destination_id = d.id
left join (
    select m.destination_id, m.partitions_max, m.leaving, m.reaches, live.registration, live.name as relay,
        live.boot_id, live.pid_namespace, live.pid, live.process_started, live.lease_left
    from posthaste.members m join live on live.registration = m.registration
) m on m.destination_id = d.id
order by d.name, m.registration
