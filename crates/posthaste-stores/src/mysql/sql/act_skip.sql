update posthaste_parked set state = 'skipped', due_at = null, closed_at = :now where id = :id
