update posthaste_ownership
set registration = :registration, epoch = epoch + 1, partition_to = :partitions, version = version + 1, left_by = null
where destination_id = :destination_id and partition_from = 0
returning version
