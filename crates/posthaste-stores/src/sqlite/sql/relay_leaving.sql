update posthaste_relays set leaving = 1
where registration = :registration and fenced_at is null and left_at is null
