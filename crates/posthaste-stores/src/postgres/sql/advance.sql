with {guard}
update posthaste.cursors c
set low = $6::pg_snapshot, high = $7::pg_snapshot, seq = $8::bigint, floor = $9::bigint, floor_min = $10::bigint,
    updated_at = clock_timestamp()
from guard g
where c.destination_id = g.destination_id and c.first_partition = g.first_partition
