-- $1 destination, $2 keys.
select m.key
from posthaste.markers m
where m.destination_id = $1::bigint and m.key = any($2::text[])
