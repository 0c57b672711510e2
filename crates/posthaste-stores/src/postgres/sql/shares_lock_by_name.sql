-- $1 destination's name. As shares_lock.sql.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('posthaste.destination', d.id))
from posthaste.destinations d where d.name = $1::text and d.state <> 'removed'
