select c.id, c.partitions, c.high, c.holes, c.high_id
from posthaste_cursors as c
where c.destination_id = :destination_id and c.epoch = :epoch and c.relay = :registration
order by c.id
