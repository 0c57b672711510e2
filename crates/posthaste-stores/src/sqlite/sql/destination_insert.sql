insert into posthaste_destinations (name, url, created_at) values (:name, :url, :now)
