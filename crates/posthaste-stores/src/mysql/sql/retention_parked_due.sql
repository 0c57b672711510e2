-- Events that nothing waits for any more, and that were kept for so long. A dead event that holds
-- its key (holds_key.sql) waits for an operator, however long.
select p.id, p.state, p.event_id, p.seq, d.name
from posthaste_parked as p join posthaste_destinations as d on d.id = p.destination_id
where p.state in ('skipped', 'discarded', 'delivered')
    and p.closed_at <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - :kept
union all
select p.id, p.state, p.event_id, p.seq, d.name
from posthaste_parked as p join posthaste_destinations as d on d.id = p.destination_id
where p.state = 'dead' and (p.`key` is null or p.closed_at is not null)
    and coalesce(p.closed_at, p.parked_at)
        <= timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - :kept
    and not exists (
        select 1 from posthaste_attempts as a
        where a.parked_id = p.id
            and a.at > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) - :kept)
limit :limit
