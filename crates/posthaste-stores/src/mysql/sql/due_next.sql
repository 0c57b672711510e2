select min(p.due_at) from posthaste_parked as p
where p.destination_id = :destination_id and p.state = 'parked' and p.due_at > :now
    and substr(:mask, (p.slot * :count div 16384) + 1, 1) = '1'
