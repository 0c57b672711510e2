insert into posthaste_members (destination_id, registration, partitions_max)
values (:destination_id, :registration, :partitions_max)
on conflict (destination_id, registration) do update set partitions_max = excluded.partitions_max
