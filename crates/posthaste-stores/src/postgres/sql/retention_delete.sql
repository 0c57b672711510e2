-- A few rows of one leaf, in one round trip, under the retention lock.
begin isolation level read committed;
set local statement_timeout = '5s';
set local lock_timeout = '50ms';
do $retention$
declare
    gone bigint;
begin
    perform pg_catalog.set_config('posthaste.went', 'another', true);
{retention_lock}    begin
        -- The condition is read by the statement that deletes.
        delete from only posthaste.{leaf} o
        where o.ctid = any(array(
                select i.ctid from only posthaste.{leaf} i
                where i.seq <= {floor}
                order by i.seq
                limit {rows}))
            and {past_window};
        get diagnostics gone = row_count;
        perform pg_catalog.set_config('posthaste.went', gone::text, true);
    exception when lock_not_available then
        perform pg_catalog.set_config('posthaste.went', 'in use', true);
    end;
end
$retention$;
select pg_catalog.current_setting('posthaste.went') as went;
commit;
