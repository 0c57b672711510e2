-- The same in a session that others use after us: every relation of PostgreSQL and of ours, and the
-- types.
do $plant$
declare
    relation pg_catalog.text;
begin
    -- Not to be caught by what is planted.
    perform pg_catalog.set_config('search_path', 'pg_catalog', true);
    for relation in
        select distinct c.relname
        from pg_catalog.pg_class c
        where c.relnamespace in ('pg_catalog'::regnamespace, 'posthaste'::regnamespace) and c.relkind in ('r', 'v', 'p')
        union all
        select pg_catalog.unnest(array['bytea', 'json', 'jsonb', 'name', 'oid', 'pg_snapshot', 'regclass', 'text',
            'timestamptz', 'uuid', 'xid', 'xid8'])
    loop
        execute pg_catalog.format('create temp table %I (planted integer)', relation);
    end loop;
end
$plant$;
