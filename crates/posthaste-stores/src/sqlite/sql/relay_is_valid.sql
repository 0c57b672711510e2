select exists (select 1 from posthaste_relays
               where registration = :registration and fenced_at is null and left_at is null)
