update posthaste_parked set state = 'skipped', due_at = null, closed_at = :now
where destination_id = :id and state in ('parked', 'dead')
limit :limit
