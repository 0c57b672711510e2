update posthaste_cursors set seq = :seq where id = :cursor_id and seq < :seq
