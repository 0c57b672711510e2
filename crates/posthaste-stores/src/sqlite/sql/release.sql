update posthaste_ownership
set registration = null, epoch = epoch + 1, not_before = max(not_before, :not_before), version = version + 1,
    left_by = registration, left_dead = :dead
where destination_id = :destination_id and partition_from = 0 and registration = :registration
returning partition_to
