-- A row without a time (its checks were bypassed) counts as the oldest.
select seq, topic, key, iif(typeof(inserted_at) = 'integer', inserted_at, 0)
from posthaste_outbox where seq > :after and seq <= :until order by seq
