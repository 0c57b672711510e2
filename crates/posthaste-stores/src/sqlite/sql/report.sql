update posthaste_destinations set breaker = :breaker, last_error = :last_error where id = :destination_id
