select (extract(epoch from p.due_at - clock_timestamp()) * 1000000)::bigint
from posthaste.parked p
where p.destination_id = $1::bigint and p.state = 'parked' and p.due_at > clock_timestamp()
order by p.due_at, p.id
limit 1
