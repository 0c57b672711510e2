insert into posthaste_cursors (destination_id, partitions, high, holes, floor, former)
values (:destination_id, :partitions, :high, :holes, :floor, '[]')
