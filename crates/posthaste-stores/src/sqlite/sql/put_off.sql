-- Behind the copy that is due at :due_at and has :id.
select seq, event_id, occurred_at, inserted_at, headers, payload,
       topic, key, type, content_type, correlation_id, causation_id, tenant_id, traceparent, tracestate,
       id, attempts, closed_at is null, kind in ('evacuated', 'not_routed'), due_at
from posthaste_parked
where destination_id = :destination_id and state = 'parked' and due_at > :now
    and kind in ('not_now', 'evacuated') and (due_at, id) > (:due_at, :id)
order by due_at, id
limit :limit
