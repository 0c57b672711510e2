-- $1 numbers, one a leaf, at or below which it holds nothing. Tells in one statement what may be
-- due: one row a leaf that is not empty, or one without a leaf. Ages in microseconds.
with settings as materialized (
    select
        max(s.value) filter (where s.name = 'leaf_bits')::integer as leaf_bits,
        max(s.value) filter (where s.name = 'retention_seconds')::bigint as seconds,
        max(s.value) filter (where s.name = 'retention_mode') as mode
    from posthaste.settings s
)
select
    coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as sequence,
    {floor} as floor,
    (select min(c.floor_min) from posthaste.cursors c) as passed,
    s.leaf_bits, s.seconds, s.mode,
    (select i.token from posthaste.incarnation i where i.one) as incarnation,
    {parked_due} as parked_due,
    coalesce((select a.at <= clock_timestamp() - interval '30 days' from posthaste.audit a order by a.id limit 1), false)
        as audit_due,
    l.leaf, l.least, l.greatest,
    (extract(epoch from clock_timestamp() - l.least_at) * 1000000)::bigint as least_age,
    (extract(epoch from clock_timestamp() - l.greatest_at) * 1000000)::bigint as greatest_age
from settings s
left join (
    {leaves}
) l on true
