update posthaste_destinations set url = :url where id = :id
