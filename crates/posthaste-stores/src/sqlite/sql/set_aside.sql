select p.seq, p.event_id
from posthaste_parked p
where p.destination_id = :destination_id
    and p.seq > (select c.seq from posthaste_cursors c where c.id = :cursor_id)
