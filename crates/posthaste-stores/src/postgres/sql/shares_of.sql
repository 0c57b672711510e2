-- $1 destination's name.
with asked as (
    select null::uuid as registration, null::bigint as lease_left
), looked as (
    select d.id as destination_id from posthaste.destinations d where d.name = $1::text and d.state <> 'removed'
), {shares}
