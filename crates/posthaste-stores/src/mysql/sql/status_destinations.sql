select d.id, d.name, d.address, d.state, d.paused_places, {breaker} as breaker,
    coalesce((
        select m.last_error from posthaste_members as m
        where m.destination_id = d.id and m.last_error is not null
        order by m.reaches, m.registration limit 1),
        case when {breaker} <> 'closed' or not exists (
            select 1 from posthaste_members as m where m.destination_id = d.id and m.reaches = 1)
        then d.last_error end),
    (select count(*) from posthaste_parked as p
        where p.destination_id = d.id and p.state = 'parked'),
    (select count(*) from posthaste_parked as p
        where p.destination_id = d.id and p.state = 'dead'),
    (select count(*) from posthaste_markers as m where m.destination_id = d.id),
    (select group_concat(distinct r.name order by r.name separator ', ')
        from posthaste_cursors as c join posthaste_relays as r on r.registration = c.relay
        where c.destination_id = d.id and r.fenced_at is null and r.lease_expires_at > :now),
    d.partitions
from posthaste_destinations as d
where d.state <> 'removed'
order by d.name
