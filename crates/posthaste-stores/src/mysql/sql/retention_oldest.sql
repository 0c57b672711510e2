-- A row without a time counts as the oldest.
select o.seq, coalesce(timestampdiff(microsecond, '1970-01-01', o.inserted_at), 0)
from posthaste_outbox as o where o.seq > :behind order by o.seq limit 1
