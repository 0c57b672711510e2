select i.system_identifier <> c.system_identifier
from posthaste.identity i cross join pg_catalog.pg_control_system() c
where i.one
