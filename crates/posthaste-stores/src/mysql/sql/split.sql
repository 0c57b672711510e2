insert into posthaste_cursors
    (destination_id, partitions, high, high_id, holes, floor, ver, relay, epoch, not_before, former,
     left_by, left_name, left_dead)
select destination_id, :partitions, high, high_id, holes, floor, ver, relay, epoch, not_before,
    former, left_by, left_name, left_dead
from posthaste_cursors where id = :id
