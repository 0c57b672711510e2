-- Whether the database is another one than the outbox was made in, whether the server's identifier
-- is known, and whether the server may be asked for it.
select i.database_oid <> d.oid or i.outbox_oid <> 'posthaste.outbox'::regclass::oid as copied,
    i.system_identifier is not null as has_system,
    pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'execute') as may_ask
from posthaste.identity i
join pg_catalog.pg_database d on d.datname = current_database()
where i.one
