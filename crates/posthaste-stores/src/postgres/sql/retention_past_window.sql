(o.inserted_at <= (
        select clock_timestamp() - interval '1 second' * s.value::bigint
        from posthaste.settings s where s.name = 'retention_seconds')
    or o.seq <= (
        select coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) - (12::bigint << s.value::integer)
        from posthaste.settings s where s.name = 'leaf_bits'))
