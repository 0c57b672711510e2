-- $1 destination, $2 place, $3 whether it is to be paused, $4 how many may be.
with meant as materialized (
    select d.id, d.name, cardinality(d.paused_places) as paused,
        $2::text = any (d.paused_places) is distinct from $3::boolean as changes
    from posthaste.destinations d
    where d.name = $1::text and d.state <> 'removed'
    for update
), changed as (
    update posthaste.destinations d
    set paused_places = case when $3::boolean then array_append(d.paused_places, $2::text)
        else array_remove(d.paused_places, $2::text) end
    from meant
    where d.id = meant.id and meant.changes and (not $3::boolean or meant.paused < $4::integer)
    returning d.name
), noted as (
    insert into posthaste.audit (action, destination, detail)
    select case when $3::boolean then {action:place_paused} else {action:place_active} end, name,
        format({detail:place_paused}, $2::text)
    from changed
)
select meant.changes and not exists (select from changed) as is_full from meant
