select p.seq, p.event_id, p.occurred_at, p.inserted_at, p.headers, p.payload,
       p.topic, p.key, p.type, p.content_type, p.correlation_id, p.causation_id, p.tenant_id,
       p.traceparent, p.tracestate,
       d.name, p.state, p.attempts, p.kind, p.reason, p.parked_at, p.due_at,
       p.key is not null and {holds_key}, d.url
from posthaste_parked as p join posthaste_destinations as d on d.id = p.destination_id
where (:destination is null or d.name = :destination)
  and (:event_id is null or p.event_id = :event_id)
  and (:key is null or {is_key})
  and case when :state is null then p.state in ('parked', 'dead') else p.state = :state end
order by p.id
limit :limit
