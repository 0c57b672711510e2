update posthaste_cursors
set high = :high, high_id = :high_id, holes = :holes, floor = :floor
where id = :id
