delete m from posthaste_members as m
join posthaste_relays as r on r.registration = m.registration
where m.destination_id = :id and r.fenced_at is not null
