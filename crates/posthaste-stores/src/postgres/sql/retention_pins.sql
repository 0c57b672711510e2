-- $1 window in microseconds. The places behind which something is older, the oldest first.
with places as (
    -- Of each destination, the group that is behind.
    select d.name, d.state, null::text as key, c.floor_min, c.updated_at as since,
        exists (
            select from posthaste.relays r
            where r.registration = c.relay and r.fenced_at is null and r.lease_until > clock_timestamp()) as live,
        (select x from pg_catalog.pg_snapshot_xip(c.low) x
            where not pg_catalog.pg_visible_in_snapshot(x, pg_catalog.pg_current_snapshot())
            order by x limit 1) as open
    from posthaste.destinations d
    cross join lateral (
        select g.* from posthaste.cursors g where g.destination_id = d.id order by g.floor_min, g.id limit 1
    ) c
    union all
    (select d.name, d.state,
        case when {by_topic:d} then pg_catalog.substr(m.key, pg_catalog.strpos(m.key, {separator}) + 1)
            else m.key end,
        m.floor_min, m.since, true, null
    from posthaste.markers m join posthaste.destinations d on d.id = m.destination_id
    order by m.floor_min
    limit 20)
)
select p.name, p.state, p.key, p.live, p.open::text as open,
    (extract(epoch from clock_timestamp() - p.since) * 1000000)::bigint as since,
    a.pid, a.application_name, (extract(epoch from clock_timestamp() - a.xact_start) * 1000000)::bigint as open_for,
    t.gid as prepared
from places p
cross join lateral (
    select o.inserted_at from posthaste.outbox o where o.seq > p.floor_min order by o.seq limit 1
) first
left join pg_catalog.pg_stat_activity a on a.backend_xid = p.open::xid
left join pg_catalog.pg_prepared_xacts t on t.transaction = p.open::xid and t.database = current_database()
where first.inserted_at <= clock_timestamp() - $1::bigint * interval '1 microsecond'
order by p.floor_min, p.key nulls first
limit 20
