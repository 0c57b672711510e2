insert into posthaste.outbox
    (id, topic, key, type, content_type, payload, headers, occurred_at,
     correlation_id, causation_id, tenant_id, traceparent, tracestate)
values
    ($1::text::uuid, $2::text, $3::text, $4::text, $5::text, $6::bytea, $7::text::text[],
     -- Seconds and the rest apart: interval arithmetic goes through a double, which is exact for both.
     timestamptz 'epoch' + $8::bigint / 1000000 * interval '1 second' + $8::bigint % 1000000 * interval '1 microsecond',
     $9::text, $10::text, $11::text, $12::text, $13::text)
