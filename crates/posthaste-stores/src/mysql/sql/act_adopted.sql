update posthaste_parked as p
join posthaste_destinations as d on d.id = p.destination_id
join posthaste_destinations as n on n.id = :to
set p.`key` = if({by_topic:n}, concat(cast(p.topic as binary), {separator}, {plain_key}), {plain_key}),
    p.destination_id = n.id
where p.id = :id
