-- The tables whose rows a policy may hide from this role; none: it sees all of them.
select string_agg('posthaste.' || c.relname, ', ' order by c.relname)
from pg_catalog.pg_class c
where c.relnamespace = 'posthaste'::regnamespace and c.relkind in ('r', 'p') and pg_catalog.row_security_active(c.oid)
