select pg_catalog.set_config('posthaste.relations', coalesce(
    (select string_agg(c.oid::text, ',') from pg_catalog.pg_class c
     where c.relnamespace = pg_catalog.to_regnamespace('posthaste')), ''), true);
