update posthaste_members set reaches = :reaches
where destination_id = :destination_id and registration = :registration
