update posthaste_parked set state = 'skipped', due_at = null, closed_at = :now
where id in (
    select id from posthaste_parked
    where destination_id = :id and state in ('parked', 'dead')
    limit :limit)
