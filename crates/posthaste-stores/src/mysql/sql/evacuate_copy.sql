-- An event that was set aside already is not copied again.
insert ignore into posthaste_parked
    (destination_id, state, attempts, kind, reason, parked_at, seq, event_id, topic, `key`, slot,
     `type`, content_type, payload, headers, occurred_at, correlation_id, causation_id, tenant_id,
     traceparent, tracestate, inserted_at)
select d.id, 'parked', 0, 'evacuated',
    'waits for its turn behind an earlier event of its key', :now, o.seq, o.id, o.topic, {order_key},
    o.slot, o.`type`, o.content_type, o.payload, convert(o.headers using utf8mb4),
    timestampdiff(microsecond, '1970-01-01', o.occurred_at), o.correlation_id, o.causation_id,
    o.tenant_id, o.traceparent, o.tracestate,
    timestampdiff(microsecond, '1970-01-01', o.inserted_at)
from posthaste_outbox as o join posthaste_destinations as d on d.id = :destination_id
where o.seq = :seq
