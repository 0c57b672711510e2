-- $1 destination's name, $2 registration: a fenced relay creates nothing.
select coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as sequence,
    (select i.token from posthaste.incarnation i where i.one and i.outbox_oid = 'posthaste.outbox'::regclass) as token,
    (select d.id from posthaste.destinations d where d.name = $1::text and d.state <> 'removed') as destination_id,
    exists (select from posthaste.relays r where r.registration = $2::uuid and r.fenced_at is null) as may_create
