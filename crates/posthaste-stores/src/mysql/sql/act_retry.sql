update posthaste_parked set state = 'parked', attempts = 0, due_at = :now where id = :id
