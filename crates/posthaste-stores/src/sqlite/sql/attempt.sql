insert into posthaste_attempts (parked_id, attempt, at, kind, reason)
values (:parked_id, :attempt, :now, :kind, :reason)
