-- A row without a time counts as the oldest.
select o.seq from posthaste_outbox as o
where o.seq > :start and o.seq <= :stop
    and timestampdiff(microsecond, '1970-01-01', o.inserted_at) > :before
order by o.seq limit 1
