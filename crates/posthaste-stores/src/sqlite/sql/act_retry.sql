-- It goes on to hold its key, or not to (holds_key.sql).
update posthaste_parked set state = 'parked', attempts = 0, due_at = :now where id = :id
