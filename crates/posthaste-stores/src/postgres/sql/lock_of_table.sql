-- $1 table.
l.locktype = 'relation' and l.relation = $1::text::regclass
    and l.database = (select d.oid from pg_catalog.pg_database d where d.datname = current_database())
    and l.mode in ('ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
