select seq, inserted_at from posthaste_outbox where seq > :behind order by seq limit 1
