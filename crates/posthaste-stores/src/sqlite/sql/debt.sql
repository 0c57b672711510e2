select count(*) from (
    select inserted_at from posthaste_outbox where seq > :pinned_at order by seq limit :limit
) where inserted_at < :before
