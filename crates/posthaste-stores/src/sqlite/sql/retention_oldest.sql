select seq, inserted_at from posthaste_outbox order by seq limit 1
