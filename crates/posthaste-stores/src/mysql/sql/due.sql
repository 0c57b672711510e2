-- Copies that are due by a time of their own, and those of retention, which have none, when it is
-- their turn, one by one, behind all that waits of their key.
select {copy}, p.id, p.attempts, p.closed_at is null, p.kind in ('evacuated', 'not_routed')
from posthaste_parked as p
join (
    select d.id, d.since from (
        select p.id, p.due_at as since from posthaste_parked as p
        where p.destination_id = :destination_id and p.state = 'parked' and p.due_at <= :now
            and substr(:mask, (p.slot * :count div 16384) + 1, 1) = '1'
        union all
        select f.id, f.parked_at as since
        from posthaste_markers as m
        join posthaste_parked as f on f.id = (
            select p.id from posthaste_parked as p
            where p.destination_id = m.destination_id and p.`key` = m.`key` and {holds_key}
            order by p.id limit 1)
        where m.destination_id = :destination_id and f.state = 'parked' and f.due_at is null
            and substr(:mask, (m.slot * :count div 16384) + 1, 1) = '1'
    ) as d
    order by d.since, d.id
    limit :limit
) as chosen on chosen.id = p.id
order by coalesce(p.due_at, p.parked_at), p.id
