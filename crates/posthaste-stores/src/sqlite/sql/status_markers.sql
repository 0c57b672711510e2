select key, seq from posthaste_markers where destination_id = :destination_id
