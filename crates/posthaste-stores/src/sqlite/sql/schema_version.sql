select coalesce(max(version), 0), coalesce(max(min_relay), 0) from posthaste_migrations
