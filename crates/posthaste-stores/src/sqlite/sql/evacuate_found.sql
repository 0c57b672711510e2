select o.seq, coalesce(length(o.payload), 0) + length(o.headers)
from posthaste_outbox as o cross join posthaste_destinations as d
cross join posthaste_markers as m on m.destination_id = d.id
    and m.key = {order_key} and m.seq < o.seq
where o.seq > :start and o.seq <= :stop and exists (
    select 1 from posthaste_parked as p
    where p.destination_id = m.destination_id and p.key = m.key and {holds_key})
order by o.seq
