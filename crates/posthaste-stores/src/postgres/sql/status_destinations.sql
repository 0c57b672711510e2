select d.id, d.name, d.address, d.state, d.paused_places, {breaker} as breaker,
    coalesce((
        select m.last_error from posthaste.members m
        where m.destination_id = d.id and m.last_error is not null
        order by m.reaches, m.registration limit 1),
        case when {breaker} <> 'closed' or not exists (
            select from posthaste.members m where m.destination_id = d.id and m.reaches) then d.last_error end) as last_error,
    (select count(*) from posthaste.parked p where p.destination_id = d.id and p.state = 'parked') as parked,
    (select count(*) from posthaste.parked p where p.destination_id = d.id and p.state = 'dead') as dead,
    (select count(*) from posthaste.markers m where m.destination_id = d.id) as blocked_keys,
    -- Nothing at or below this is unfinished.
    least(
        (select min(c.floor_min) from posthaste.cursors c where c.destination_id = d.id),
        (select min(m.floor_min) from posthaste.markers m where m.destination_id = d.id)
    ) as start,
    (select string_agg(distinct r.name, ', ' order by r.name)
        from posthaste.cursors c join posthaste.relays r on r.registration = c.relay
        where c.destination_id = d.id and r.fenced_at is null and r.lease_until > clock_timestamp()) as relay,
    (select sum(t.rate)
        from posthaste.relays r cross join unnest(r.rated, r.rates) t (name, rate)
        where t.name = d.name and r.fenced_at is null and r.lease_until > clock_timestamp()) as accepted_per_second,
    array(
        select r.places from posthaste.relays r
        where r.places <> '' and r.fenced_at is null
            and r.lease_until > clock_timestamp()) as places
from posthaste.destinations d
where d.state <> 'removed'
order by d.name
