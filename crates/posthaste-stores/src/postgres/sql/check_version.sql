select coalesce(max(version), 0) as version, coalesce(max(min_relay), 0) as min_relay from posthaste.migrations
