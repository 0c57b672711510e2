select id, state, url, breaker, paused_places from posthaste_destinations
where name = :name and state <> 'removed'
