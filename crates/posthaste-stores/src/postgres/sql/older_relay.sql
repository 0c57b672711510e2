-- $1 the level that a relay must have beside a destination of this order.
select r.name from posthaste.relays r
where r.level < $1::integer and r.fenced_at is null and r.lease_until > clock_timestamp()
order by r.name limit 1
