-- $1 destination, $2 id, $3 key: none means any; $4 states, $5 new state, $6 action. Only what still waits is acted on;
-- a copy that waits for its turn only by its id, since its key is to go on with it.
with acted as (
    update posthaste.parked p
    set state = $5::text,
        attempts = case when $5::text = 'parked' then 0 else p.attempts end,
        due_at = case when $5::text = 'parked' then clock_timestamp() end,
        settled_at = case when $5::text <> 'parked' then clock_timestamp() end,
        payload = case when $5::text = 'discarded' then null else p.payload end
    from posthaste.destinations d
    where d.id = p.destination_id and d.state <> 'removed'
        and ($1::text is null or d.name = $1::text)
        and ($2::uuid is null or p.event_id = $2::uuid)
        and ($3::text is null or p.key = $3::text)
        and p.state = any($4::text[]) and p.state in ('parked', 'dead')
        and (p.due_at is not null or p.state = 'dead' or ($2::uuid is not null and $5::text <> 'parked'))
    returning p.event_id, p.seq, d.name
)
insert into posthaste.audit (action, destination, detail)
select 'dead ' || $6::text, name, 'event ' || coalesce(event_id::text, 'without an id') || ' (seq ' || seq || ')'
from acted
