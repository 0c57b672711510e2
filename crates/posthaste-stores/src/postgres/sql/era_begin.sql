-- $1 the last `seq` of the ending era, $2 the server's identifier, $3 cursors and $4 behind which
-- `seq` they go on, $5 and $6 destination and key of markers and $7 the same of them, $8
-- destinations' names and $9 what the audit says of them.
with ended as (
    insert into posthaste.eras
        (era, store_id, system_identifier, database_oid, outbox_oid, began_at, last_seq, cursors)
    select i.era, i.store_id, i.system_identifier, i.database_oid, i.outbox_oid, i.began_at, $1::bigint,
        (select jsonb_agg(to_jsonb(c) order by c.id) from posthaste.cursors c)
    from posthaste.identity i where i.one
), begun as (
    update posthaste.identity i
    set store_id = gen_random_uuid(), system_identifier = $2::bigint, outbox_oid = 'posthaste.outbox'::regclass,
        database_oid = (select d.oid from pg_catalog.pg_database d where d.datname = current_database()),
        era = i.era + 1, after_seq = $1::bigint, began_at = clock_timestamp()
    where i.one
    returning i.era, i.store_id
), counted as (
    insert into posthaste.incarnation as i (token, outbox_oid)
    values (gen_random_uuid(), 'posthaste.outbox'::regclass)
    on conflict (one) do update set token = excluded.token, outbox_oid = excluded.outbox_oid
), fenced as (
    update posthaste.relays r set fenced_at = clock_timestamp() where r.fenced_at is null
    returning r.registration, r.name
), left_ as (
    delete from posthaste.members
), raised as (
    update posthaste.destinations d set epoch = d.epoch + 1, shares_version = d.shares_version + 1
), placed as (
    update posthaste.cursors c
    set low = case when u.start < $1::bigint then '1:1:' else '3:3:' end::pg_snapshot,
        high = case when u.start < $1::bigint
            then '9223372036854775807:9223372036854775807:' end::pg_snapshot,
        seq = case when u.start < $1::bigint then u.start end,
        floor = $1::bigint, floor_min = u.start, updated_at = clock_timestamp(),
        relay = null, epoch = d.epoch + 1, former = '{}', left_by = null, left_name = null, left_dead = false
    from unnest($3::bigint[], $4::bigint[]) u (id, start), posthaste.destinations d
    where c.id = u.id and d.id = c.destination_id
), marked as (
    update posthaste.markers m
    set low = case when u.start < $1::bigint then '1:1:' else '3:3:' end::pg_snapshot,
        high = case when u.start < $1::bigint
            then '9223372036854775807:9223372036854775807:' end::pg_snapshot,
        seq = case when u.start < $1::bigint then u.start end,
        floor = $1::bigint, floor_min = u.start
    from unnest($5::bigint[], $6::text[], $7::bigint[]) u (destination_id, key, start)
    where m.destination_id = u.destination_id and m.key = u.key
)
insert into posthaste.audit (action, destination, detail)
select {action:new_era}, null, pg_catalog.format({detail:new_era}, b.era, $1::bigint, b.store_id)
from begun b
union all
select {action:new_era}, u.name, u.detail from unnest($8::text[], $9::text[]) u (name, detail)
union all
select {action:fence}, null, pg_catalog.format({detail:fence}, f.name, f.registration, {of_the_original}) from fenced f
