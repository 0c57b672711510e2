-- Last a row with the number of those without a key that were put off and wait.
select p.seq, p.event_id, null
from posthaste_parked p
where p.destination_id = :destination_id
    and p.seq > (select c.seq from posthaste_cursors c where c.id = :cursor_id)
union all
select null, null, count(*)
from posthaste_parked p
where p.destination_id = :destination_id and p.state = 'parked' and p.key is null
    and p.kind = 'not_now'
