delete from posthaste_markers
where destination_id = :destination_id and `key` = :key and not exists (
    select 1 from posthaste_parked as p
    where p.destination_id = :destination_id and p.`key` = :key and {holds_key})
