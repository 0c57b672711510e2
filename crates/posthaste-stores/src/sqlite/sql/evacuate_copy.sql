-- An event that was set aside already is not copied again.
insert into posthaste_parked
    (destination_id, state, attempts, kind, reason, parked_at, seq, event_id, topic, key, type, content_type, payload,
     headers, occurred_at, correlation_id, causation_id, tenant_id, traceparent, tracestate, inserted_at)
select m.destination_id, 'parked', 0, 'evacuated', 'waits for its turn behind an earlier event of its key', :now,
       o.seq, o.id, o.topic, m.key, o.type, o.content_type, cast(o.payload as blob), o.headers, o.occurred_at,
       o.correlation_id, o.causation_id, o.tenant_id, o.traceparent, o.tracestate, o.inserted_at
from posthaste_outbox as o cross join posthaste_destinations as d
cross join posthaste_markers as m on m.destination_id = d.id
    and m.key = {order_key} and m.seq < o.seq
where o.seq > :start and o.seq <= :stop and exists (
    select 1 from posthaste_parked as p
    where p.destination_id = m.destination_id and p.key = m.key and {holds_key})
order by o.seq
on conflict (destination_id, seq) do nothing
returning destination_id
