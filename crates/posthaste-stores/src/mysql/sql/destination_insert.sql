insert ignore into posthaste_destinations
    (name, address, partitions, epoch, shares_version, paused_places, created_at)
select n.name, '', :partitions, coalesce(max(d.epoch), 0), coalesce(max(d.shares_version), 0) + 1,
    '[]', :now
from (select cast(:name as binary) as name) as n
left join posthaste_destinations as d on d.name = n.name
group by n.name
