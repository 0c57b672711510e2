select m.destination_id, m.`key` from posthaste_markers as m
where m.floor < :stop and exists (
    select 1 from posthaste_parked as p
    where p.destination_id = m.destination_id and p.`key` = m.`key` and {holds_key})
