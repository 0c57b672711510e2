-- A row without a time counts as the oldest.
select o.seq, coalesce(timestampdiff(microsecond, '1970-01-01', o.inserted_at), 0),
    coalesce(length(o.payload), 0)
from posthaste_outbox as o where o.seq <= :floor order by o.seq limit :rows
