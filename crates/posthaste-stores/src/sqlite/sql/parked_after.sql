select seq from posthaste_parked where destination_id = :destination_id and seq > :after
