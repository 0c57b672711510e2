insert into posthaste_members (destination_id, registration, partitions_max)
values (:destination_id, :registration, :partitions_max)
on duplicate key update partitions_max = values(partitions_max)
