update posthaste_markers set seq = max(seq, :seq) where destination_id = :destination_id and key = :key
