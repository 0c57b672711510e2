-- The oldest rows, as long as they are together no larger than this: the pages of large ones take
-- time to free.
-- A row without a time (its checks were bypassed) counts as the oldest.
delete from posthaste_outbox
where seq in (
    select seq from (
        select seq, inserted_at,
               sum(coalesce(length(payload), 0)) over (order by seq rows between unbounded preceding and 1 preceding) as before
        from (
            select seq, iif(typeof(inserted_at) = 'integer', inserted_at, 0) as inserted_at, payload
            from posthaste_outbox where seq <= :floor order by seq limit :rows
        )
    )
    where inserted_at <= :before_time and coalesce(before, 0) < :bytes
)
