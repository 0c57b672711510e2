select id, state, url from posthaste_destinations where name = :name and state <> 'removed'
