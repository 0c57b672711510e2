-- $1 name, $2 start now (else at the oldest event), $3 registration. The snapshot is the
-- statement's own, taken before its transaction has a number. Floors of zero are always proven, and
-- so is the end of the eras before: rows up to there are all committed, and are read as what they
-- left over (`eras.rs`).
with created as (
    -- Sinks compare epochs, relays versions: a name that was removed goes on above them.
    insert into posthaste.destinations (name, partitions, epoch, shares_version)
    select $1::text, s.value::integer,
        coalesce((select max(d.epoch) from posthaste.destinations d where d.name = $1::text), 0),
        coalesce((select max(d.shares_version) from posthaste.destinations d where d.name = $1::text), 0) + 1
    from posthaste.settings s where s.name = 'partitions'
    on conflict (name) where state <> 'removed' do nothing
    returning id, name, partitions
), locked as (
    insert into posthaste.destination_locks (destination_id) select id from created
), placed as (
    insert into posthaste.cursors (destination_id, low, high, seq, floor, floor_min)
    select c.id, case when $2::boolean then pg_catalog.pg_current_snapshot() else '1:1:'::pg_snapshot end,
        case when i.after_seq > 0 and not $2::boolean
            then '9223372036854775807:9223372036854775807:'::pg_snapshot end,
        case when i.after_seq > 0 and not $2::boolean then 0 end,
        i.after_seq, case when $2::boolean then i.after_seq else 0 end
    from created c join posthaste.identity i on i.one
    returning id, destination_id
), cut as (
    insert into posthaste.partitions (destination_id, partition, cursor_id)
    select c.id, p, placed.id
    from created c cross join placed cross join lateral generate_series(0, c.partitions - 1) p
)
insert into posthaste.audit (relay, action, destination, detail)
select $3::uuid, {action:destination_created}, name,
    format({detail:destination_created}, case when $2::boolean then 'now' else 'oldest' end)
from created
