not exists (
    select from posthaste.cursors c
    where c.destination_id = n.id and not (c.low::text = '1:1:' and coalesce(c.seq, 0) = 0))
