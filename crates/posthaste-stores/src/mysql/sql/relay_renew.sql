update posthaste_relays
set lease_expires_at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + :lease,
    rates = :rates, places = :places
where registration = :registration and fenced_at is null
