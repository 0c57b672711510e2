insert into posthaste_migrations (version, name, min_relay) values (:version, :name, :min_relay)
