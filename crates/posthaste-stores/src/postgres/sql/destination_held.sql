-- One row if the destination is there; the name of a live relay that serves it, if that keeps it
-- from being removed.
select (
        select r.name
        from posthaste.members m join posthaste.relays r on r.registration = m.registration
        where m.destination_id = d.id and r.fenced_at is null and r.lease_until > clock_timestamp()
        order by r.name
        limit 1)
from posthaste.destinations d
where d.name = $1::text and d.state <> 'removed'
