select
    coalesce((
        select sum(pg_catalog.pg_total_relation_size(t.relid))
        from pg_catalog.pg_partition_tree('posthaste.outbox') t), 0)::bigint as bytes,
    coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as sequence
