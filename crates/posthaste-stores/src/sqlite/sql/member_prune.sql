delete from posthaste_members where registration not in (select registration from posthaste_relays)
