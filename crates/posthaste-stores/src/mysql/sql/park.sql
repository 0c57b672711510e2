insert into posthaste_parked
    (destination_id, state, attempts, kind, reason, parked_at, due_at, closed_at, seq, event_id,
     topic, `key`, slot, `type`, content_type, payload, headers, occurred_at, correlation_id,
     causation_id, tenant_id, traceparent, tracestate, inserted_at)
values
    (:destination_id, :state, :attempts, :kind, :reason, :now, :due_at, :closed_at, :seq, :event_id,
     :topic, :key, :slot, :type, :content_type, :payload, :headers, :occurred_at, :correlation_id,
     :causation_id, :tenant_id, :traceparent, :tracestate, :inserted_at)
on duplicate key update id = last_insert_id(id), attempts = values(attempts), kind = values(kind),
    reason = values(reason)
