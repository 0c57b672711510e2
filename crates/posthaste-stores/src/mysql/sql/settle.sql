update posthaste_parked
set kind = if(:state = 'delivered', kind, :kind),
    reason = if(:state = 'delivered', reason, :reason),
    attempts = attempts + :counts, due_at = :due_at, closed_at = coalesce(:closed_at, closed_at),
    state = :state
where id = :id
