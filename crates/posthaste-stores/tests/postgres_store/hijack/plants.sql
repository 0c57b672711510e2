-- A role with the right to create in two schemas of everybody's search path could plant this: every
-- function, operator and type of pg_catalog once more. Each is of a type that fits nowhere, and
-- fails when it is called all the same.
create schema postgres;
create type public.planted as enum ('planted');
do $plant$
declare
    body constant text := 'begin raise exception ''planted''; end';
    f record;
begin
    for f in
        select distinct p.proname as name, oidvectortypes(p.proargtypes) as arguments
        from pg_proc p
        where p.pronamespace = 'pg_catalog'::regnamespace
            and not exists (
                select from unnest(p.proargtypes) a where a in ('internal'::regtype, 'cstring'::regtype))
    loop
        begin
            execute format('create function public.%I(%s) returns public.planted language plpgsql as %L',
                f.name, f.arguments, body);
        exception when others then
            -- Arguments of any type whatever: only C takes them.
            execute format('create function public.%I(%s) returns public.planted language internal as %L',
                f.name, f.arguments, 'pg_typeof');
        end;
    end loop;
    for f in
        select o.oid, row_number() over () as number, o.oprname as name, o.oprkind as kind,
            format_type(o.oprleft, null) as l, format_type(o.oprright, null) as r
        from pg_operator o
        where o.oprnamespace = 'pg_catalog'::regnamespace
    loop
        execute format('create function public.planted_%s(%s) returns public.planted language plpgsql as %L',
            f.number, case f.kind when 'l' then f.r else f.l || ', ' || f.r end, body);
        execute format('create operator postgres.%s (%s rightarg = %s, function = public.planted_%s)',
            f.name, case f.kind when 'l' then '' else 'leftarg = ' || f.l || ',' end, f.r, f.number);
    end loop;
end
$plant$;
do $plant$
declare
    of_type text;
begin
    foreach of_type in array array['bytea', 'json', 'jsonb', 'name', 'oid', 'pg_snapshot', 'regclass', 'text',
        'timestamptz', 'uuid', 'xid', 'xid8']
    loop
        execute format('create type public.%I as (planted integer)', of_type);
    end loop;
end
$plant$;
