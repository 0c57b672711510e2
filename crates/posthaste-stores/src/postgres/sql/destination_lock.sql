-- The retention lock. It needs no transaction number, as a row's lock does, so that the next
-- statement's snapshot still lies before ours. Only relays have rights on the table.
lock table posthaste.retention_lock in share row exclusive mode
