-- The one-row key lets two relays that refill at once agree on one token.
with refilled as (
    insert into posthaste.incarnation as i (token, outbox_oid)
    select gen_random_uuid(), 'posthaste.outbox'::regclass
    where not exists (
        select from posthaste.incarnation x where x.one and x.outbox_oid = 'posthaste.outbox'::regclass)
    on conflict (one) do update set token = excluded.token, outbox_oid = excluded.outbox_oid
        where i.outbox_oid <> excluded.outbox_oid
    returning i.token
)
insert into posthaste.audit (relay, action, detail)
select $1::uuid, {action:incarnation}, format({detail:incarnation}, token) from refilled
