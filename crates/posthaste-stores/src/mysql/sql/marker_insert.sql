insert into posthaste_markers (destination_id, `key`, slot, high, holes, floor, since)
values (:destination_id, :key, :slot, :high, :holes, :floor, :now)
