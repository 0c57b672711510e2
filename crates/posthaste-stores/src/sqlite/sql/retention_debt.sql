-- A row without a time (its checks were bypassed) counts as the oldest.
select count(*), count(*) filter (where inserted_at <= :before) from (
    select iif(typeof(inserted_at) = 'integer', inserted_at, 0) as inserted_at
    from posthaste_outbox where seq > :floor order by seq limit :limit
)
