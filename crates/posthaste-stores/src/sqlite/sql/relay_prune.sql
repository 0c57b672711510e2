delete from posthaste_relays
where max(lease_expires_at, coalesce(fenced_at, 0), coalesce(left_at, 0)) < :before
  and not exists (select 1 from posthaste_ownership as o where o.registration = posthaste_relays.registration)
