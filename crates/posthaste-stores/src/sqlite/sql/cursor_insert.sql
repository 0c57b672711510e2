insert into posthaste_cursors (destination_id, seq) values (:destination_id, :seq)
