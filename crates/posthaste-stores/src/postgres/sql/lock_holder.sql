-- The holder of a lock, as far as this role may see.
select string_agg(
    coalesce(
        'process ' || l.pid || ' (role `' || a.usename || '`, application `' || a.application_name || '`)',
        'process ' || l.pid,
        'prepared transaction `' || t.gid || '`',
        'a prepared transaction'),
    ', ') as holder
from pg_catalog.pg_locks l
left join pg_catalog.pg_stat_activity a on a.pid = l.pid
left join pg_catalog.pg_prepared_xacts t on t.transaction = l.transactionid
where l.granted and l.pid is distinct from pg_catalog.pg_backend_pid() and {held}
