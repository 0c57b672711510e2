-- $6 key, then its new place. While something that waits holds the key, no side read moves its marker: it stands
-- where that was parked, or further on, where retention has put it.
with {guard}, moved as (
    update posthaste.markers m
    set low = $7::pg_snapshot, high = $8::pg_snapshot, seq = $9::bigint, floor = $10::bigint, floor_min = $11::bigint
    from guard g
    where m.destination_id = g.destination_id and m.key = $6::text
        and not exists (
            select from posthaste.parked p
            where p.destination_id = m.destination_id and p.key = m.key and p.state in ('parked', 'dead'))
    returning m.key
)
select exists (select from guard) as guarded, exists (
    select from posthaste.markers m where m.destination_id = $1::bigint and m.key = $6::text) as changed
