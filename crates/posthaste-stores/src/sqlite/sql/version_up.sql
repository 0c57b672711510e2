update posthaste_ownership set version = version + 1
where destination_id = :destination_id and partition_from = 0
returning version
