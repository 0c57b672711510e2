select a.at, a.action, coalesce(a.relay_name, r.name), a.destination, a.detail
from posthaste_audit as a left join posthaste_relays as r on r.registration = a.registration
where a.action in ({actions})
order by a.id desc
limit :limit
