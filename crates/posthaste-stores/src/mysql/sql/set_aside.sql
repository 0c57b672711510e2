-- Last a row with the number of those without a key that were put off and wait.
select seq, event_id, null
from posthaste_parked
where destination_id = :destination_id and seq > :floor
union all
select null, null, count(*)
from posthaste_parked as p
where p.destination_id = :destination_id and p.state = 'parked' and p.`key` is null
    and p.kind = 'not_now' and substr(:mask, (p.slot * :count div 16384) + 1, 1) = '1'
