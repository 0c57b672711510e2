-- Before the first event that a blocked key keeps and all cursors have passed, and how far they
-- have.
select o.seq - 1, c.passed
from (select min(seq) as passed from posthaste_cursors) as c
cross join posthaste_outbox as o
where o.seq = (
    select n.seq from posthaste_outbox as n
    where n.seq > (
        select min(m.seq) from posthaste_markers as m
        where m.seq < c.passed and exists (
            select 1 from posthaste_parked as p
            where p.destination_id = m.destination_id and p.key = m.key and {holds_key}))
    order by n.seq limit 1)
