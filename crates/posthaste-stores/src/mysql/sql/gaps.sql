-- The numbers between two rows, or before the first.
select g.behind + 1, g.seq - 1
from (select seq, coalesce(lag(seq) over (order by seq), 0) as behind from posthaste_outbox) as g
where g.seq > g.behind + 1
order by g.seq
