select seq, event_id, occurred_at, inserted_at, headers, payload,
       topic, key, type, content_type, correlation_id, causation_id, tenant_id, traceparent, tracestate,
       id, attempts
from posthaste_parked
where destination_id = :destination_id and state = 'parked' and due_at <= :now
order by due_at, id
limit :limit
