-- $1 destination, $2 first partition, $3 epoch, $4 registration. Token and cursor in one statement: a token is never
-- adopted for a cursor that was loaded before it.
select c.low, c.high, c.seq, c.floor, c.floor_min,
    (select i.token from posthaste.incarnation i where i.one and i.outbox_oid = 'posthaste.outbox'::regclass) as token,
    coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as sequence,
    (select s.value::smallint from posthaste.settings s where s.name = 'leaf_bits') as leaf_bits
from posthaste.ownership o
join posthaste.relays r on r.registration = o.relay and r.fenced_at is null
join posthaste.cursors c on c.destination_id = o.destination_id and c.first_partition = o.first_partition
where o.destination_id = $1::bigint and o.first_partition = $2::integer
    and o.epoch = $3::bigint and o.relay = $4::uuid
