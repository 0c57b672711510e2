-- $6 key, then its new place.
with {guard}, moved as (
    update posthaste.markers m
    set low = $7::pg_snapshot, high = $8::pg_snapshot, seq = $9::bigint, floor = $10::bigint, floor_min = $11::bigint
    from guard g
    where m.destination_id = g.destination_id and m.key = $6::text
    returning m.key
)
select exists (select from guard) as guarded, exists (select from moved) as changed
