-- $1 destination, $2 id, $3 key: none means any; $4 states, $5 at most. Columns in the order of a
-- read, then the copy's.
select p.seq, p.event_id, p.topic, {plain_key} as key, p.type, p.content_type, p.payload, p.headers, p.occurred_at, p.inserted_at,
    p.correlation_id, p.causation_id, p.tenant_id, p.traceparent, p.tracestate, p.slot,
    d.name as destination, p.state, p.attempts, p.kind, p.reason, p.parked_at, p.due_at,
    p.key is not null and {holds_key} as holds_key
from posthaste.parked p
join posthaste.destinations d on d.id = p.destination_id
where ($1::text is null or d.name = $1::text)
    and ($2::uuid is null or p.event_id = $2::uuid)
    and ($3::text is null or {plain_key} = $3::text)
    and p.state = any($4::text[])
order by p.parked_at, p.id
limit $5::bigint
