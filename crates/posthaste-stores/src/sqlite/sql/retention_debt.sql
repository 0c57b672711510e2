select count(*), count(*) filter (where inserted_at <= :before) from (
    select inserted_at from posthaste_outbox where seq > :floor order by seq limit :limit
)
