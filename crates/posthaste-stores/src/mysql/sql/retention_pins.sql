-- The places behind which something is older than the window, the oldest first.
select k.name, k.state, k.`key`, k.since, k.live, k.has_holes
from (
    select d.name, d.state, null as `key`, c.floor, 0 as since, c.high > c.floor as has_holes,
        exists (
            select 1 from posthaste_relays as r
            where r.registration = c.relay and r.fenced_at is null
                and r.lease_expires_at > :now) as live
    from posthaste_cursors as c join posthaste_destinations as d on d.id = c.destination_id
    union all
    select d.name, d.state,
        if({by_topic:d}, substr(m.`key`, locate({separator}, m.`key`) + 1), m.`key`), m.floor, m.since, 0, 1
    from posthaste_markers as m join posthaste_destinations as d on d.id = m.destination_id
) as k
where (
    select coalesce(timestampdiff(microsecond, '1970-01-01', o.inserted_at), 0)
    from posthaste_outbox as o where o.seq > k.floor order by o.seq limit 1) <= :before
order by k.floor, k.`key` is not null
limit 20
