-- $1 destination, $2 id, $3 key: none means any; $4 states, $5 new state, $6 action, $7 behind this
-- copy, $8 at most. Copies that still wait. Skipped ones only to erase them, or to try them
-- again once their key has gone on. A copy that waits for its turn only by its id, since its key is
-- to go on with it. No destination is removed meanwhile: nothing may be left of it that waits.
with kept as materialized (
    select d.id, d.address
    from posthaste.destinations d
    where ($1::text is null or d.name = $1::text) and (d.state <> 'removed' or $5::text = 'discarded')
    for share
), meant as (
    select p.id
    from kept d
    join posthaste.parked p on p.destination_id = d.id
    where p.id > $7::bigint
        and ($2::uuid is null or p.event_id = $2::uuid)
        and ($3::text is null or {plain_key} = $3::text)
        and p.state = any($4::text[])
        and (p.state in ('parked', 'dead')
            or p.state = 'skipped' and $5::text = 'discarded'
            or p.state = 'skipped' and $5::text = 'parked' and not exists (
                select from posthaste.markers m where m.destination_id = p.destination_id and m.key = p.key))
        and (p.due_at is not null or p.state in ('dead', 'skipped') or ($2::uuid is not null and $5::text <> 'parked'))
    order by p.id
    limit $8::bigint
    for update of p
), acted as (
    update posthaste.parked p
    set state = $5::text,
        attempts = case when $5::text = 'parked' then 0 else p.attempts end,
        due_at = case when $5::text = 'parked' then clock_timestamp() end,
        -- Tried again, it goes on to hold its key, or not to (holds_key.sql).
        settled_at = case when $5::text = 'parked' then p.settled_at else clock_timestamp() end,
        payload = case when $5::text = 'discarded' then null else p.payload end
    from meant m
    where p.id = m.id
    returning p.id, p.destination_id, p.event_id, p.seq
), noted as (
    insert into posthaste.audit (action, destination, detail)
    select $6::text, d.name, format({detail:dead_retry}, coalesce(a.event_id::text, {without_id}), a.seq)
    from acted a
    join posthaste.destinations d on d.id = a.destination_id
)
select count(*) as acted, max(a.id) as last from acted a
