-- One row if the destination is there; its live relay's name, if that keeps it from being removed.
select (
        select r.name
        from posthaste.ownership o join posthaste.relays r on r.registration = o.relay
        where o.destination_id = d.id and r.fenced_at is null and r.lease_until > clock_timestamp()
        limit 1)
from posthaste.destinations d
where d.name = $1::text and d.state <> 'removed'
