select attempts, event_id, seq from posthaste_parked where id = :id and destination_id = :destination_id
