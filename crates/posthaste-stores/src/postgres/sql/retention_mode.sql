do $retention$
declare
    relation regclass;
begin
    -- Once this is committed no truncation begins any more that has read the setting before.
    {lock};
    -- The server's own vacuum shortens a table behind the same lock as a truncation. Writers do not
    -- wait for this change.
    for relation in
        select c.oid from pg_catalog.pg_class c
        where c.relnamespace = 'posthaste'::regnamespace and c.relkind = 'r' and c.relname <> 'retention_lock'
        order by c.relname
    loop
        if '{mode}' = 'delete' then
            execute pg_catalog.format(
                'alter table %s set (vacuum_truncate = off, toast.vacuum_truncate = off)', relation);
        else
            execute pg_catalog.format('alter table %s reset (vacuum_truncate, toast.vacuum_truncate)', relation);
        end if;
    end loop;
end
$retention$;
