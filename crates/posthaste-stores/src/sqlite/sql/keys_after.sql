select seq, key, inserted_at from posthaste_outbox where seq > :after and seq <= :until order by seq
