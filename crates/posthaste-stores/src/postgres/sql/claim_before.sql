-- $1 destination's name, $2 registration: a fenced relay creates nothing.
select coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as sequence,
    (select i.token from posthaste.incarnation i where i.one and i.outbox_oid = 'posthaste.outbox'::regclass) as token,
    n.id as destination_id,
    {passed_nothing} and exists (
        select from posthaste.destinations d where d.name = n.name and d.state = 'removed') as reads_again,
    exists (select from posthaste.relays r where r.registration = $2::uuid and r.fenced_at is null) as may_create
from (select $1::text as name) wanted
left join posthaste.destinations n on n.name = wanted.name and n.state <> 'removed'
