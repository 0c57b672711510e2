select name from posthaste_relays where registration = :registration
