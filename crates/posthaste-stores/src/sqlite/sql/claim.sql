update posthaste_ownership
set registration = :registration, epoch = epoch + 1, not_before = max(not_before, :not_before),
    partition_to = :partitions, version = version + 1
where destination_id = :destination_id and partition_from = 0
returning epoch, not_before, version
