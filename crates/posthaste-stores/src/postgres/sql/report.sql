with {guard}, told as (
    update posthaste.members m set reaches = $6::text = 'closed', last_error = $7::text
    from guard g
    where m.destination_id = g.destination_id and m.registration = $4::uuid
        and (m.reaches, m.last_error) is distinct from ($6::text = 'closed', $7::text)
)
update posthaste.destinations d
set breaker = $6::text, last_error = $7::text
from guard g
where d.id = g.destination_id
    and (d.breaker, d.last_error) is distinct from ($6::text, $7::text)
