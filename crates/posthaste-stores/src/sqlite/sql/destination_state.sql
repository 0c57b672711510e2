update posthaste_destinations set state = :state where id = :id
