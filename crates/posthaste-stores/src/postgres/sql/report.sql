with {guard}, known as (
    select m.destination_id, m.reaches, m.last_error
    from guard g
    join posthaste.members m on m.destination_id = g.destination_id and m.registration = $4::uuid
), told as (
    update posthaste.members m set reaches = $6::text = 'closed', last_error = $7::text
    from known k
    where m.destination_id = k.destination_id and m.registration = $4::uuid
        and (k.reaches, k.last_error) is distinct from ($6::text = 'closed', $7::text)
)
update posthaste.destinations d
set breaker = $6::text, last_error = $7::text,
    shares_version = d.shares_version + exists (
        select from known k where k.reaches is distinct from ($6::text = 'closed'))::integer
from guard g
where d.id = g.destination_id
    and ((d.breaker, d.last_error) is distinct from ($6::text, $7::text)
        or exists (select from known k where k.reaches is distinct from ($6::text = 'closed')))
