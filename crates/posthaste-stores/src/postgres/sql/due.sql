-- $1 destination, $2 at most. Columns in the order of a read, then the copy's own.
select p.seq, p.event_id, p.topic, p.key, p.type, p.content_type, p.payload, p.headers, p.occurred_at, p.inserted_at,
    p.correlation_id, p.causation_id, p.tenant_id, p.traceparent, p.tracestate, p.slot, p.id, p.attempts
from posthaste.parked p
where p.destination_id = $1::bigint and p.state = 'parked' and p.due_at <= clock_timestamp()
order by p.due_at, p.id
limit $2::bigint
