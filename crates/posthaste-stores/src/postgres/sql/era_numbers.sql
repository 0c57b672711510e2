-- The last number that the sequence has given, and the greatest `seq` of a row.
select coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as given,
    coalesce((select max(o.seq) from posthaste.outbox o), 0) as written
