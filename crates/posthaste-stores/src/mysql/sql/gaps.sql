-- The numbers between two rows, or before the first, and none behind the last one. One statement
-- sees what one moment has: a number that is drawn between two would count as seen.
select g.behind + 1, g.seq - 1
from (select seq, coalesce(lag(seq) over (order by seq), 0) as behind from posthaste_outbox) as g
where g.seq > g.behind + 1
union all
select max(seq) + 1, max(seq) from posthaste_outbox having max(seq) is not null
order by 1
