with renewed as (
    update posthaste.relays
    set lease_until = clock_timestamp() + $2::bigint * interval '1 microsecond'
    where registration = $1::uuid and fenced_at is null
    returning registration
)
select d.name, d.state
from renewed
left join posthaste.ownership o on o.relay = renewed.registration
left join posthaste.destinations d on d.id = o.destination_id
