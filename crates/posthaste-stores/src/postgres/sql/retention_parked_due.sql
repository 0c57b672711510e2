-- Events that nothing waits for any more. A dead event that holds its key (holds_key.sql) waits for
-- an operator, however long.
select p.id
from posthaste.parked p
where p.state in ('skipped', 'discarded', 'delivered') and p.settled_at <= clock_timestamp() - interval '30 days'
union all
select p.id
from posthaste.parked p
where p.state = 'dead' and (p.key is null or p.settled_at is not null)
    and coalesce(p.settled_at, p.parked_at) <= clock_timestamp() - interval '30 days'
    and not exists (
        select from posthaste.attempts a
        where a.parked_id = p.id and a.at > clock_timestamp() - interval '30 days'
        offset 0)
