select coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as sequence,
    (select i.token from posthaste.incarnation i where i.one and i.outbox_oid = 'posthaste.outbox'::regclass) as token
