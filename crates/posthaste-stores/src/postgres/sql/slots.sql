-- A bit a partition, and by how much a slot is shifted to give its partition.
    and pg_catalog.get_bit({mask}::bytea, ((coalesce(slot, 0::smallint) & 16383::smallint) >> {shift}::integer)::bigint) = 1
