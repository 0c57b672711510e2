update posthaste_markers as m set seq = :stop
where m.seq < :stop and exists (
    select 1 from posthaste_parked as p
    where p.destination_id = m.destination_id and p.key = m.key and {holds_key})
