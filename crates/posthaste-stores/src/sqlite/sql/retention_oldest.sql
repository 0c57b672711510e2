select seq, inserted_at from posthaste_outbox where seq > ?1 order by seq limit 1
