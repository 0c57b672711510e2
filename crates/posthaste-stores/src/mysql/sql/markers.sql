select m.`key`, m.high, m.holes, not exists (
    select 1 from posthaste_parked as p
    where p.destination_id = m.destination_id and p.`key` = m.`key` and {holds_key})
from posthaste_markers as m
where m.destination_id = :destination_id and (:after is null or m.`key` > :after)
    and substr(:mask, (m.slot * :count div 16384) + 1, 1) = '1'
order by m.`key`
limit :limit
