update posthaste_parked set state = 'delivered', attempts = attempts + 1, due_at = null, closed_at = :now
where id = :id
