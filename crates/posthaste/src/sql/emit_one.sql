-- Whose search path it is nobody knows: types and operators are named exactly.
insert into posthaste.outbox
    (id, topic, key, type, content_type, payload, headers, occurred_at,
     correlation_id, causation_id, tenant_id, traceparent, tracestate)
values
    ($1::pg_catalog.text::pg_catalog.uuid, $2::pg_catalog.text, $3::pg_catalog.text, $4::pg_catalog.text,
     $5::pg_catalog.text, $6::pg_catalog.bytea, $7::pg_catalog.text::pg_catalog.text[],
     -- Seconds and the rest apart: interval arithmetic goes through a double, which is exact for both.
     'epoch'::pg_catalog.timestamptz
         operator(pg_catalog.+) (($8::bigint operator(pg_catalog./) 1000000) operator(pg_catalog.*) interval '1 second')
         operator(pg_catalog.+) (($8::bigint operator(pg_catalog.%) 1000000) operator(pg_catalog.*) interval '1 microsecond'),
     $9::pg_catalog.text, $10::pg_catalog.text, $11::pg_catalog.text, $12::pg_catalog.text, $13::pg_catalog.text)
