select m.key, m.low, m.high, m.seq, m.floor, m.floor_min,
    not exists (
        select from posthaste.parked p
        where p.destination_id = m.destination_id and p.key = m.key and p.state in ('parked', 'dead')) as released
from posthaste.markers m
where m.destination_id = $1::bigint
order by m.since, m.key
limit $2::bigint
