update posthaste_relays
set lease_expires_at = :lease_expires_at, lease = :lease, rates = :rates, places = :places
where registration = :registration and fenced_at is null and left_at is null
