-- The holders of locks on tables of ours, the oldest transaction first.
select case
    when h.pid is null
        then pg_catalog.concat('the prepared transaction `', p.gid, '`')
    else pg_catalog.concat('process ', h.pid, ' (application `', a.application_name, '`, role `', a.usename,
        '`, transaction began ', a.xact_start::timestamptz(0), ')')
    end
from (
    select distinct l.pid, l.virtualtransaction
    from pg_catalog.pg_locks l
    join pg_catalog.pg_class c on c.oid = l.relation
    join pg_catalog.pg_namespace n on n.oid = c.relnamespace and n.nspname = 'posthaste'
    where l.locktype = 'relation' and l.granted
        and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database())
        and l.pid is distinct from pg_catalog.pg_backend_pid()
) h
left join pg_catalog.pg_stat_activity a on a.pid = h.pid
left join pg_catalog.pg_prepared_xacts p on h.pid is null and h.virtualtransaction = '-1/' || p.transaction::text
order by coalesce(a.xact_start, p.prepared) nulls last
limit 5
