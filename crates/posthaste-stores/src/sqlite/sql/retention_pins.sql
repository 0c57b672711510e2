-- The places behind which something is older than the window, the oldest first.
-- A row without a time (its checks were bypassed) counts as the oldest.
select p.name, p.state, p.key, p.since, p.live
from (
    select d.name, d.state, null as key, c.seq as seq, 0 as since,
           exists (
               select 1 from posthaste_ownership as o
               join posthaste_relays as r on r.registration = o.registration
               where o.destination_id = d.id and {live}) as live
    from posthaste_cursors as c join posthaste_destinations as d on d.id = c.destination_id
    union all
    select d.name, d.state, iif({by_topic:d}, substr(m.key, instr(m.key, {separator}) + 1), m.key), m.seq, m.since, 1
    from posthaste_markers as m join posthaste_destinations as d on d.id = m.destination_id
) as p
where (select iif(typeof(o.inserted_at) = 'integer', o.inserted_at, 0)
       from posthaste_outbox as o where o.seq > p.seq order by o.seq limit 1) <= :before
order by p.seq, p.key is not null
limit 20
