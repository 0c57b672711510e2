select value from posthaste_settings where name = :name
