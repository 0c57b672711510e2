-- $1 registration, $2 destination's name, none: all that it serves. As shares_lock.sql.
select pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true), l.destination_id
from posthaste.destination_locks l
where l.destination_id in (
    select d.id
    from posthaste.members m join posthaste.destinations d on d.id = m.destination_id
    where m.registration = $1::uuid and ($2::text is null or d.name = $2::text))
order by l.destination_id
for update
