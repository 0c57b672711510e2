-- Nothing changes when an operator skipped or discarded it meanwhile: that stands. Unless it was
-- delivered all the same: that is what happened.
update posthaste_parked
set state = :state, attempts = attempts + :counts,
    kind = case when :state = 'delivered' then kind else :kind end,
    reason = case when :state = 'delivered' then reason else :reason end,
    due_at = :due_at, closed_at = coalesce(:closed_at, closed_at)
where id = :id and (state in ('parked', 'dead') or :state = 'delivered')
