select id, state, url, breaker from posthaste_destinations where name = :name and state <> 'removed'
