-- The locks are all held before the first row is joined, so before any `seq` is drawn; the defaults are
-- computed above the sort, so `seq` follows the position.
insert into posthaste.outbox
    (id, topic, key, type, content_type, payload, headers, occurred_at,
     correlation_id, causation_id, tenant_id, traceparent, tracestate)
select
    e.id::uuid, e.topic, e.key, e.type, e.content_type, e.payload, e.headers::text[],
    timestamptz 'epoch' + e.occurred_at / 1000000 * interval '1 second' + e.occurred_at % 1000000 * interval '1 microsecond',
    e.correlation_id, e.causation_id, e.tenant_id, e.traceparent, e.tracestate
from (select count(pg_advisory_xact_lock(lock_number)) as held from unnest($14::bigint[]) as lock_number) as locks
cross join unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[], $7::text[], $8::bigint[],
                  $9::text[], $10::text[], $11::text[], $12::text[], $13::text[]) with ordinality
    as e(id, topic, key, type, content_type, payload, headers, occurred_at,
         correlation_id, causation_id, tenant_id, traceparent, tracestate, position)
where locks.held >= 0
order by e.position
