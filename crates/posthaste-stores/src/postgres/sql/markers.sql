-- $1 destination, $2 and $3 slots (see slots.sql), $4 at most, $5 behind this key; none: from the
-- first on.
select m.key, m.low, m.high, m.seq, m.floor, m.floor_min,
    not exists (
        select from posthaste.parked p
        where p.destination_id = m.destination_id and p.key = m.key and {holds_key}) as released
from posthaste.markers m
where m.destination_id = $1::bigint
    -- So that a page begins where it begins in the index, too.
    and m.key >= coalesce($5::text, '') and m.key is distinct from $5::text
    and ($2::bytea is null or pg_catalog.get_bit($2::bytea, (m.slot >> $3::integer)::bigint) = 1)
order by m.key
limit $4::bigint
