-- $6 keys, then their new places. While something that waits holds a key, no side read moves its
-- marker: it stands where that was parked, or further on, where retention has put it.
with {guard}, moved as (
    update posthaste.markers m
    set low = u.low, high = u.high, seq = u.seq, floor = u.floor, floor_min = u.floor_min
    from guard g
    cross join unnest($6::text[], $7::pg_snapshot[], $8::pg_snapshot[], $9::bigint[], $10::bigint[], $11::bigint[])
        u (key, low, high, seq, floor, floor_min)
    where m.destination_id = g.destination_id and m.key = u.key
        -- A skipped event has taken it further along.
        and (m.low::text = u.low::text and m.high::text = u.high::text and m.seq > u.seq) is not true
        and not exists (
            select from posthaste.parked p
            where p.destination_id = m.destination_id and p.key = m.key and {holds_key}
            offset 0)
    returning m.key
)
select exists (select from guard) as guarded, (
    select count(*) = cardinality($6::text[]) from posthaste.markers m
    where m.destination_id = $1::bigint and m.key = any($6::text[])) as changed
