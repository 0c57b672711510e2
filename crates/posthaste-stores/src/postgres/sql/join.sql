-- $6 keys.
with {guard}, joined as (
    delete from posthaste.markers m
    using guard g
    where m.destination_id = g.destination_id and m.key = any($6::text[])
        and not exists (
            select from posthaste.parked p
            where p.destination_id = m.destination_id and p.key = m.key and {holds_key}
            offset 0)
    returning m.destination_id
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $4::uuid, {action:join}, d.name, format({detail:join}, j.keys)
    from (select destination_id, count(*) as keys from joined group by destination_id) j
    join posthaste.destinations d on d.id = j.destination_id
)
select exists (select from guard) as guarded,
    (select count(*) = cardinality($6::text[]) from joined) as changed
