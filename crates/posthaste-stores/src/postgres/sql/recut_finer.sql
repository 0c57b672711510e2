-- $1 destination, $2 partitions for each one. No slot changes its row. All of the source is read
-- before anything changes.
insert into posthaste.partitions as p (destination_id, partition, cursor_id)
select o.destination_id, o.partition * $2::integer + n, o.cursor_id
from posthaste.partitions o cross join generate_series(0, $2::integer - 1) n
where o.destination_id = $1::bigint
on conflict (destination_id, partition) do update set cursor_id = excluded.cursor_id
