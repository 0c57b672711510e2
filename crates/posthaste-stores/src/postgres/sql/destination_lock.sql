-- The retention lock. It needs no transaction number, so that the next statement's snapshot still lies before ours.
select pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('posthaste.retention', 0))
