select r.registration from posthaste_relays as r
where r.lease_expires_at < :before and not exists (
    select 1 from posthaste_cursors as c where c.relay = r.registration)
order by r.registration
