-- By the numbers that are kept and the size of the oldest rows: what the server tells of its files
-- is minutes old.
select cast(coalesce(
    (select max(seq) - min(seq) + 1 from posthaste_outbox)
    * (select avg(k.bytes) from (
        select length(o.topic) + coalesce(length(o.`key`), 0) + coalesce(length(o.payload), 0)
            + length(o.headers) + 100 as bytes
        from posthaste_outbox as o order by o.seq limit 100) as k), 0) as unsigned)
