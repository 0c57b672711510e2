update posthaste_cursors
set relay = null, not_before = greatest(not_before, :not_before), former = :former,
    left_by = :left_by, left_name = :left_name, left_dead = :left_dead
where id = :id
