-- The furthest number that relays have stored.
select max((select coalesce(max(seq), 0) from posthaste_cursors), (select coalesce(max(seq), 0) from posthaste_markers),
           (select coalesce(max(seq), 0) from posthaste_parked))
