-- A foreign role that may have code run when a table of ours is written to; none: there is none.
-- Reads pg_catalog alone, as init_foreign.sql.
with trusted as (
    select r.oid from pg_catalog.pg_roles r where r.rolsuper or r.rolname = current_user
), tables as (
    select c.oid, c.relname, c.relowner, c.relacl
    from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
    where n.nspname = 'posthaste' and c.relkind in ('r', 'p')
), found as (
    select 'TRIGGER on posthaste.' || t.relname || ' is granted to' as what, a.grantee as role, t.relowner
    from tables t cross join pg_catalog.aclexplode(t.relacl) a
    where a.privilege_type = 'TRIGGER'
    union all
    select 'the function of trigger ' || pg_catalog.quote_ident(g.tgname) || ' on posthaste.' || t.relname || ' belongs to',
        p.proowner, t.relowner
    from tables t
    join pg_catalog.pg_trigger g on g.tgrelid = t.oid
    join pg_catalog.pg_proc p on p.oid = g.tgfoid
    where not g.tgisinternal
)
select (
    select f.what || ' role ' || case f.role when 0 then 'PUBLIC' else f.role::pg_catalog.regrole::text end
    from found f
    where f.role <> f.relowner and not exists (select from trusted t where t.oid = f.role)
    limit 1) as found
