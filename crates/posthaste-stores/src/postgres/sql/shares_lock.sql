-- $1 destination. Whoever changes who owns what of it does so after another. Then cursors are locked, by id, then the
-- destination. Who is stopped in between does not keep the others waiting for long.
select pg_catalog.set_config('idle_in_transaction_session_timeout', '5s', true),
    pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('posthaste.destination', $1::bigint))
