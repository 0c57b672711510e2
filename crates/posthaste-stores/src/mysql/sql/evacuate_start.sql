-- Before the first event that a blocked key keeps and all cursors have passed, and how far they
-- have.
select (
    select o.seq - 1 from posthaste_outbox as o
    where o.seq > (
        select min(m.floor) from posthaste_markers as m
        where m.floor < c.passed and exists (
            select 1 from posthaste_parked as p
            where p.destination_id = m.destination_id and p.`key` = m.`key` and {holds_key}))
    order by o.seq limit 1), c.passed
from (select min(floor) as passed from posthaste_cursors) as c
where c.passed is not null
