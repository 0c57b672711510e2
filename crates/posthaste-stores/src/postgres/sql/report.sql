with {guard}
update posthaste.destinations d
set breaker = $6::text, last_error = $7::text
from guard g
where d.id = g.destination_id
    and (d.breaker, d.last_error) is distinct from ($6::text, $7::text)
