-- $1 destination's name, none: any. A row bears the number of the transaction that locked it last.
l.locktype = 'transactionid' and l.transactionid in (
    select x.number
    from posthaste.destinations d
    cross join lateral (
        select d.xmax
        union all
        select r.xmax from posthaste.destination_locks r where r.destination_id = d.id
        union all
        select c.xmax from posthaste.cursors c where c.destination_id = d.id
    ) x (number)
    where d.state <> 'removed' and ($1::text is null or d.name = $1::text))
