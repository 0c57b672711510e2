select r.name from posthaste_relays as r
where r.level < :level and r.fenced_at is null and r.lease_expires_at > :now
order by r.name limit 1
