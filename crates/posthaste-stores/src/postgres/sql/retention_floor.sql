-- None while the sequence stands below a number that was seen of it: rows written since may lie
-- below every floor.
(select least(min(c.floor_min), (select min(m.floor_min) from posthaste.markers m))
from posthaste.cursors c
having max(c.floor) <= coalesce(pg_catalog.pg_sequence_last_value('posthaste.outbox_seq_seq'::regclass), 0))
