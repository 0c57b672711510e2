select min(due_at) from posthaste_parked
where destination_id = :destination_id and state = 'parked' and due_at > :now
