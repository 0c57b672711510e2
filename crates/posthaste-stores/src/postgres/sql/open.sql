-- $1 destination, $2 epoch, $3 registration. Token and cursors in one statement: a token is never
-- adopted for a cursor that was loaded before it.
select c.id, c.low, c.high, c.seq, c.floor, c.floor_min, d.partitions as count,
    array(select p.partition from posthaste.partitions p where p.cursor_id = c.id order by p.partition) as partitions,
    (select i.token from posthaste.incarnation i where i.one and i.outbox_oid = 'posthaste.outbox'::regclass) as token,
    coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as sequence,
    (select s.value = 'on' from posthaste.settings s where s.name = 'notify') as notify,
    (select s.value::smallint from posthaste.settings s where s.name = 'leaf_bits') as leaf_bits
from posthaste.cursors c
join posthaste.destinations d on d.id = c.destination_id
join posthaste.relays r on r.registration = c.relay and r.fenced_at is null
where c.destination_id = $1::bigint and c.epoch = $2::bigint and c.relay = $3::uuid
order by c.id
