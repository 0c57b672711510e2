-- $1 name, $2 state, $3 how many of its parked events are closed already, $4 how many at the most in
-- this statement. Removing needs that no live relay serves it. First what it had set aside is
-- closed; with the last of that its progress and its markers go.
with meant as materialized (
    select d.id, d.name
    from posthaste.destinations d
    where d.name = $1::text and d.state <> 'removed' and d.state <> $2::text
        and ($2::text <> 'removed' or not exists (
            select from posthaste.members m join posthaste.relays r on r.registration = m.registration
            where m.destination_id = d.id and r.fenced_at is null and r.lease_until > clock_timestamp()))
    for update
), closed as (
    update posthaste.parked p set state = 'skipped', due_at = null, settled_at = clock_timestamp()
    where $2::text = 'removed' and p.id in (
        select w.id
        from meant join posthaste.parked w on w.destination_id = meant.id
        where w.state in ('parked', 'dead')
        limit $4::bigint)
    returning p.id
), changed as (
    update posthaste.destinations d
    set state = $2::text, removed_at = case when $2::text = 'removed' then clock_timestamp() end
    from meant
    where d.id = meant.id and (select count(*) from closed) < $4::bigint
    returning d.id, d.name
), uncut as (
    delete from posthaste.partitions p using changed where p.destination_id = changed.id and $2::text = 'removed'
), moved as (
    delete from posthaste.cursors c using changed where c.destination_id = changed.id and $2::text = 'removed'
), struck as (
    delete from posthaste.members m using changed where m.destination_id = changed.id and $2::text = 'removed'
), unmarked as (
    delete from posthaste.markers m using changed where m.destination_id = changed.id and $2::text = 'removed'
), noted as (
    insert into posthaste.audit (action, destination, detail)
    select
        case $2::text when 'active' then {action:destination_active} when 'paused' then {action:destination_paused}
            else {action:destination_removed} end,
        name,
        case $2::text when 'removed' then
            format({detail:destination_removed}, $3::bigint + (select count(*) from closed)) else '' end
    from changed
    union all
    select {action:destination_emptied}, name,
        format({detail:destination_emptied}, (select count(*) from closed))
    from meant
    where not exists (select from changed)
)
select exists (select from changed) as changed, (select count(*) from closed) as closed
