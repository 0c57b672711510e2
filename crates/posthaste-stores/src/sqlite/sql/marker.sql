select seq from posthaste_markers where destination_id = :destination_id and key = :key
