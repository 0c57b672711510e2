-- $1 destination, $2 keys, $3 and $4 slots (see slots.sql).
select m.key, m.low, m.high, m.seq, m.floor, m.floor_min
from posthaste.markers m
where m.destination_id = $1::bigint and m.key = any($2::text[])
    and ($3::bytea is null or pg_catalog.get_bit($3::bytea, (m.slot >> $4::integer)::bigint) = 1)
