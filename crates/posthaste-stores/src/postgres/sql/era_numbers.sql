-- What the sequence has given, and the greatest `seq` that anything here knows of.
select coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0) as given,
    greatest(
        0,
        (select max(o.seq) from posthaste.outbox o),
        (select max(greatest(c.floor, c.seq)) from posthaste.cursors c),
        (select max(greatest(m.floor, m.seq)) from posthaste.markers m),
        (select max(p.seq) from posthaste.parked p)) as known
