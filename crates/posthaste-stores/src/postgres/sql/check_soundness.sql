select
    pg_catalog.pg_encoding_to_char(d.encoding) as encoding,
    s.seqcache as cache, s.seqincrement as increment, s.seqcycle as cycles,
    coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as sequence,
    -- Seen of the sequence: by a reader, or in a row.
    greatest(0, (select max(c.floor) from posthaste.cursors c), (select max(o.seq) from posthaste.outbox o)) as floor,
    (select count(*) from pg_catalog.pg_inherits l
        where l.inhparent = 'posthaste.outbox'::regclass and not l.inhdetachpending) as leaves,
    exists (
        select from pg_catalog.pg_subscription_rel r
        join pg_catalog.pg_partition_tree('posthaste.outbox') t on t.relid = r.srrelid
    ) or exists (
        select from pg_catalog.pg_subscription_rel r where r.srrelid = 'posthaste.outbox'::regclass
    ) as subscribed
from pg_catalog.pg_database d
cross join pg_catalog.pg_sequence s
where d.datname = current_database() and s.seqrelid = 'posthaste.outbox_seq_seq'::regclass
