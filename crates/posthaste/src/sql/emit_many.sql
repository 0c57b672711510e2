-- The locks are all held before the first row is joined, so before any `seq` is drawn; the defaults are
-- computed above the sort, so `seq` follows the position. Types, functions and operators are named exactly,
-- since the search path is the caller's (`unnest` of several arrays is syntax).
insert into posthaste.outbox
    (id, topic, key, type, content_type, payload, headers, occurred_at,
     correlation_id, causation_id, tenant_id, traceparent, tracestate)
select
    e.id::pg_catalog.uuid, e.topic, e.key, e.type, e.content_type, e.payload, e.headers::pg_catalog.text[],
    'epoch'::pg_catalog.timestamptz
        operator(pg_catalog.+) ((e.occurred_at operator(pg_catalog./) 1000000) operator(pg_catalog.*) interval '1 second')
        operator(pg_catalog.+) ((e.occurred_at operator(pg_catalog.%) 1000000) operator(pg_catalog.*) interval '1 microsecond'),
    e.correlation_id, e.causation_id, e.tenant_id, e.traceparent, e.tracestate
from (
    select pg_catalog.count(pg_catalog.pg_advisory_xact_lock(lock_number)) as held
    from pg_catalog.unnest($14::bigint[]) as lock_number
) as locks
cross join unnest(
    $1::pg_catalog.text[], $2::pg_catalog.text[], $3::pg_catalog.text[], $4::pg_catalog.text[], $5::pg_catalog.text[],
    $6::pg_catalog.bytea[], $7::pg_catalog.text[], $8::bigint[],
    $9::pg_catalog.text[], $10::pg_catalog.text[], $11::pg_catalog.text[], $12::pg_catalog.text[], $13::pg_catalog.text[]
) with ordinality
    as e(id, topic, key, type, content_type, payload, headers, occurred_at,
         correlation_id, causation_id, tenant_id, traceparent, tracestate, position)
where locks.held operator(pg_catalog.>=) 0
order by e.position
