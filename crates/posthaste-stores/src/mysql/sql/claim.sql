update posthaste_cursors
set relay = :relay, epoch = :epoch, left_by = null, left_name = null, left_dead = 0, ver = ver + 1
where id = :id
