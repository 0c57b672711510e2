select a.at, a.action, r.name, a.destination, coalesce(a.detail, '')
from posthaste_audit as a left join posthaste_relays as r on r.registration = a.registration
where a.action in (select value from json_each(:actions))
order by a.id desc
limit :limit
