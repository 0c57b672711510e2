select coalesce(sum(pgsize), 0) from dbstat where aggregate = 1 and name = 'posthaste_outbox'
