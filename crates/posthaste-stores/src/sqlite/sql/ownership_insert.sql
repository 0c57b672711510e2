-- The epochs of a destination go on where those of a removed one of the same name ended: sinks
-- compare them.
insert into posthaste_ownership (destination_id, partition_from, partition_to, cursor_id, epoch)
select :destination_id, 0, :partitions, :cursor_id, coalesce(max(o.epoch), 0)
from posthaste_destinations as d left join posthaste_ownership as o on o.destination_id = d.id
where d.name = :name
