-- $1 destination. The header row comes first and has no topic. It uses the columns of the event
-- rows, so that those carry nothing more: F as seq, the incarnation as id, the statement's snapshot
-- as payload, the version of the destination's shares as key. pg_sequence_last_value takes the
-- buffer's lock; a SELECT of last_value reads past it and can be 32 too high.
select
    coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as seq,
    (select i.token from posthaste.incarnation i where i.one and i.outbox_oid = 'posthaste.outbox'::regclass) as id,
    null::text as topic,
    (select d.shares_version::text from posthaste.destinations d where d.id = $1::bigint) as key,
    null::text as type, null::text as content_type,
    pg_catalog.pg_snapshot_send(pg_catalog.pg_current_snapshot()) as payload,
    null::text[] as headers, null::timestamptz as occurred_at, null::timestamptz as inserted_at,
    null::text as correlation_id, null::text as causation_id, null::text as tenant_id,
    null::text as traceparent, null::text as tracestate, null::smallint as slot
