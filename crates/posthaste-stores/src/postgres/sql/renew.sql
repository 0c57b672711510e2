-- $1 registration, $2 lease in microseconds, $3 destinations, $4 rates, $5 places that are held
-- back.
with asked as (
    update posthaste.relays
    set lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond',
        rated = $3::text[], rates = $4::float8[], places = $5::text
    where registration = $1::uuid and fenced_at is null
    returning registration, $2::bigint as lease_left
), looked as (
    select m.destination_id from asked a join posthaste.members m on m.registration = a.registration
), {shares}
