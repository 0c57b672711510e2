update posthaste_parked set state = 'parked', attempts = 0, due_at = :now, closed_at = null where id = :id
