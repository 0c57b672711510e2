select {copy}, p.id, p.attempts, p.closed_at is null, p.kind in ('evacuated', 'not_routed'),
    p.due_at
from posthaste_parked as p
where p.destination_id = :destination_id and p.state = 'parked' and p.due_at > :now
    and p.kind in ('not_now', 'evacuated')
    and (p.due_at > :due_at or (p.due_at = :due_at and p.id > :id))
    and substr(:mask, (p.slot * :count div 16384) + 1, 1) = '1'
order by p.due_at, p.id
limit :limit
