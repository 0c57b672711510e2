-- $1 destination. Changes of its ownership go one after another. Each locks this row first, then
-- the cursors, by id, then the destination. A session that is stopped in between does not keep the
-- others waiting for long. A row, and no advisory lock, which any role that may connect could take:
-- only relays have rights on this table.
select pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true), l.destination_id
from posthaste.destination_locks l
where l.destination_id = $1::bigint
for update
