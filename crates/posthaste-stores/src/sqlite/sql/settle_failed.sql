update posthaste_parked
set state = :state, attempts = attempts + 1, kind = :kind, reason = :reason, due_at = :due_at,
    closed_at = coalesce(:closed_at, closed_at)
where id = :id and state in ('parked', 'dead')
