-- At or below this nothing is needed any more; none without any cursor.
select case when exists (select 1 from posthaste_cursors) then min(seq) end
from (select seq from posthaste_cursors union all select seq from posthaste_markers)
