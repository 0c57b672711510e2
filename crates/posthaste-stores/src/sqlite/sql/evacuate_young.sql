select seq from posthaste_outbox where seq > :start and seq <= :stop and inserted_at > :before order by seq limit 1
