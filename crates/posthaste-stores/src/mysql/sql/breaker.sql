case
    when exists (
        select 1 from posthaste_members as bm
        where bm.destination_id = d.id and bm.reaches = 0 and exists (
            select 1 from posthaste_cursors as bo
            where bo.destination_id = d.id and bo.relay = bm.registration))
    then case d.breaker when 'closed' then 'open' else d.breaker end
    when exists (
        select 1 from posthaste_members as bm where bm.destination_id = d.id and bm.reaches = 1)
    then 'closed'
    else d.breaker
end
