update posthaste_parked set state = 'discarded', payload = null, due_at = null, closed_at = :now
where id = :id
