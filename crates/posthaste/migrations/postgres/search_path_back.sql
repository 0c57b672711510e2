-- Whoever runs this text may go on in the same transaction.
do $$
begin
    perform pg_catalog.set_config('search_path', pg_catalog.current_setting('posthaste.search_path'), true);
end
$$;
