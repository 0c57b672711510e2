update posthaste.cursors c
    set relay = null, left_by = $2::uuid, left_name = $3::text, left_dead = false,
        not_before = case when $7::bigint > 0
            then greatest(c.not_before, clock_timestamp() + $7::bigint * interval '1 microsecond')
            else c.not_before end,
        former = case when $7::bigint > 0
            then array_append(array_remove(c.former, $2::uuid), $2::uuid)
            else c.former end
    where c.id = any($6::bigint[])
