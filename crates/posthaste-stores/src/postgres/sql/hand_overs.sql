-- $1 actions, $2 at most. The newest lines are at the end of the table.
select a.at, a.action, coalesce(a.relay_name, r.name) as relay, a.destination, a.detail
from posthaste.audit a
left join posthaste.relays r on r.registration = a.relay
where a.action = any($1::text[])
order by a.id desc
limit $2::bigint
