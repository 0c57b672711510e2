-- $1 destination's name. As shares_lock.sql.
select l.destination_id
from posthaste.destination_locks l join posthaste.destinations d on d.id = l.destination_id
where d.name = $1::text and d.state <> 'removed'
for update of l
