-- A foreign role that may have put something into the schema; none: there is none. Reads pg_catalog
-- alone: all that is read in a schema that others fill may run their code, a view and a function
-- first of all.
with schema as (
    select n.oid, n.nspowner, coalesce(n.nspacl, pg_catalog.acldefault('n', n.nspowner)) as acl
    from pg_catalog.pg_namespace n where n.nspname = 'posthaste'
), trusted as (
    select r.oid from pg_catalog.pg_roles r where r.rolsuper or r.rolname = current_user
), found as (
    select 'schema posthaste belongs to' as what, s.nspowner as role from schema s
    union all
    select 'objects in schema posthaste may be created by', a.grantee
    from schema s cross join pg_catalog.aclexplode(s.acl) a
    where a.privilege_type = 'CREATE'
    union all
    select 'posthaste.' || c.relname || ' belongs to', c.relowner
    from schema s join pg_catalog.pg_class c on c.relnamespace = s.oid
    union all
    select 'posthaste.' || p.proname || ' belongs to', p.proowner
    from schema s join pg_catalog.pg_proc p on p.pronamespace = s.oid
    union all
    select 'posthaste.' || o.oprname || ' belongs to', o.oprowner
    from schema s join pg_catalog.pg_operator o on o.oprnamespace = s.oid
    union all
    select 'posthaste.' || t.typname || ' belongs to', t.typowner
    from schema s join pg_catalog.pg_type t on t.typnamespace = s.oid
)
select (
    select f.what || ' role ' || case f.role when 0 then 'PUBLIC' else f.role::pg_catalog.regrole::text end
    from found f
    where not exists (select from trusted t where t.oid = f.role)
    limit 1) as found
