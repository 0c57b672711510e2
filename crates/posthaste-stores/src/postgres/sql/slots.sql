-- A bit a partition, and by how much a slot is shifted to give its partition.
    and pg_catalog.get_bit({mask}::bytea, (slot >> {shift}::integer)::bigint) = 1
