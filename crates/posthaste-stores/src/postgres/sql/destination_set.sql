-- $1 name, $2 state. Removing needs that no live relay serves it; its progress and its markers go,
-- and what it had set aside waits no more.
with changed as (
    update posthaste.destinations d
    set state = $2::text, removed_at = case when $2::text = 'removed' then clock_timestamp() end
    where d.name = $1::text and d.state <> 'removed' and d.state <> $2::text
        and ($2::text <> 'removed' or not exists (
            select from posthaste.members m join posthaste.relays r on r.registration = m.registration
            where m.destination_id = d.id and r.fenced_at is null and r.lease_until > clock_timestamp()))
    returning d.id, d.name
), uncut as (
    delete from posthaste.partitions p using changed where p.destination_id = changed.id and $2::text = 'removed'
), moved as (
    delete from posthaste.cursors c using changed where c.destination_id = changed.id and $2::text = 'removed'
), struck as (
    delete from posthaste.members m using changed where m.destination_id = changed.id and $2::text = 'removed'
), unmarked as (
    delete from posthaste.markers m using changed where m.destination_id = changed.id and $2::text = 'removed'
), closed as (
    update posthaste.parked p set state = 'skipped', due_at = null, settled_at = clock_timestamp()
    from changed
    where p.destination_id = changed.id and p.state in ('parked', 'dead') and $2::text = 'removed'
    returning p.id
), noted as (
    insert into posthaste.audit (action, destination, detail)
    select
        case $2::text when 'active' then {action:destination_active} when 'paused' then {action:destination_paused}
            else {action:destination_removed} end,
        name,
        case $2::text when 'removed' then format({detail:destination_removed}, (select count(*) from closed)) else '' end
    from changed
)
select exists (select from changed) as changed
