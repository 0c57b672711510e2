select m.key
from posthaste.markers m
where m.destination_id = $1::bigint
    and not exists (
        select from posthaste.parked p
        where p.destination_id = m.destination_id and p.key = m.key and p.state in ('parked', 'dead'))
order by m.since, m.key
limit $2::bigint
