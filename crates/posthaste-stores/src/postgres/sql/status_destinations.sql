select d.id, d.name, d.address, d.state, d.breaker, d.last_error,
    (select count(*) from posthaste.parked p where p.destination_id = d.id and p.state = 'parked') as parked,
    (select count(*) from posthaste.parked p where p.destination_id = d.id and p.state = 'dead') as dead,
    (select count(*) from posthaste.markers m where m.destination_id = d.id) as blocked_keys,
    -- Nothing at or below this is unfinished.
    least(
        (select min(c.floor_min) from posthaste.cursors c where c.destination_id = d.id),
        (select min(m.floor_min) from posthaste.markers m where m.destination_id = d.id)
    ) as start,
    (select r.name
        from posthaste.ownership o join posthaste.relays r on r.registration = o.relay
        where o.destination_id = d.id and r.fenced_at is null and r.lease_until > clock_timestamp()
        limit 1) as relay
from posthaste.destinations d
where d.state <> 'removed'
order by d.name
