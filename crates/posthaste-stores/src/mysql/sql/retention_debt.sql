-- A row without a time counts as the oldest.
select count(*), sum(k.inserted_at <= :before) from (
    select coalesce(timestampdiff(microsecond, '1970-01-01', o.inserted_at), 0) as inserted_at
    from posthaste_outbox as o where o.seq > :floor order by o.seq limit :limit
) as k
