-- Copies that are due by a time of their own, and those of retention, which have none, when it is
-- their turn: one by one, behind all that waits of their key.
select seq, event_id, occurred_at, inserted_at, headers, payload,
       topic, key, type, content_type, correlation_id, causation_id, tenant_id, traceparent, tracestate,
       id, attempts, closed_at is null, kind in ('evacuated', 'not_routed')
from posthaste_parked
where id in (
    select id from (
        select id, due_at as since from posthaste_parked
        where destination_id = :destination_id and state = 'parked' and due_at <= :now
        union all
        select f.id, f.parked_at
        from posthaste_markers as m
        join posthaste_parked as f on f.id = (
            select p.id from posthaste_parked as p
            where p.destination_id = m.destination_id and p.key = m.key and {holds_key}
            order by p.id limit 1)
        where m.destination_id = :destination_id and f.state = 'parked' and f.due_at is null
    )
    order by since, id
    limit :limit
)
order by coalesce(due_at, parked_at), id
