-- A number that a cursor has passed and that another event has now. A row that is gone proves nothing:
-- retention removes it.
select min(o.seq)
from posthaste_cursors as c join posthaste_outbox as o on o.seq = c.passed_seq
where o.id <> c.passed_id
