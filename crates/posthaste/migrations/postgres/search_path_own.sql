-- Until the end of this text names and operators are PostgreSQL's own, whatever others have created.
do $$
begin
    perform pg_catalog.set_config('posthaste.search_path', pg_catalog.current_setting('search_path'), true);
    perform pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
end
$$;
