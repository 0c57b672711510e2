select coalesce((select seq from sqlite_sequence where name = 'posthaste_outbox'), 0)
