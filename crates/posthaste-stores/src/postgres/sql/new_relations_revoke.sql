-- `alter default privileges` may have given others the rights to run code as any role that writes
-- to a new table, or to keep its rows from being deleted.
do $$
declare
    given_ record;
begin
    for given_ in
        select distinct c.relname, case a.grantee when 0 then 'public' else a.grantee::pg_catalog.regrole::text end as role
        from pg_catalog.pg_class c cross join pg_catalog.aclexplode(c.relacl) a
        where c.relnamespace = pg_catalog.to_regnamespace('posthaste') and c.relkind in ('r', 'p')
            and a.grantee <> c.relowner and a.privilege_type in ('TRIGGER', 'REFERENCES')
            and c.oid::text <> all (pg_catalog.string_to_array(pg_catalog.current_setting('posthaste.relations'), ','))
    loop
        execute pg_catalog.format('revoke trigger, references on posthaste.%I from %s', given_.relname, given_.role);
    end loop;
end
$$;
