-- $1 destination, $2 partitions that become one; all of them are in the same row.
insert into posthaste.partitions as p (destination_id, partition, cursor_id)
select o.destination_id, o.partition / $2::integer, o.cursor_id
from posthaste.partitions o
where o.destination_id = $1::bigint and o.partition % $2::integer = 0
on conflict (destination_id, partition) do update set cursor_id = excluded.cursor_id
