-- $1 destination. Waits for changes of relays under their epochs; the next statement sees them.
select c.id from posthaste.cursors c where c.destination_id = $1::bigint order by c.id for update
