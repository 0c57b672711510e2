update posthaste_relays set left_at = :now, lease_expires_at = min(lease_expires_at, :now)
where registration = :registration and fenced_at is null and left_at is null
