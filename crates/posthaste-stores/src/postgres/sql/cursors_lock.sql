-- $1 destination. Waits for what relays are changing under their epochs; the next statement sees it.
select c.id from posthaste.cursors c where c.destination_id = $1::bigint order by c.id for update
