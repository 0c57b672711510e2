update posthaste_relays set fenced_at = :now
where registration = :registration and fenced_at is null and lease_expires_at <= :over
