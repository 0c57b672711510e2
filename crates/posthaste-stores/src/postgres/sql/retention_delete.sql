-- A few rows of one leaf, in one round trip, under the retention lock.
set local statement_timeout = '5s';
set local lock_timeout = '50ms';
do $retention$
declare
    gone bigint;
    reached bigint;
begin
    perform pg_catalog.set_config('posthaste.went', 'another', true);
{retention_lock}    begin
        -- The condition is read by the statement that deletes. At or below {behind} nothing is
        -- left; rows that vacuum has not removed yet need not be looked at.
        with found as materialized (
            select o.ctid as place, o.seq, {past_window} as past
            from only posthaste.{leaf} o
            where o.seq > {behind} and o.seq <= {floor}
            order by o.seq
            limit {rows}
        ), deleted as (
            delete from only posthaste.{leaf} o
            where o.ctid = any(array(select f.place from found f where f.past))
            returning o.seq
        )
        select (select count(*) from deleted), coalesce(min(f.seq) filter (where not f.past) - 1, max(f.seq), {behind})
        into gone, reached
        from found f;
        perform pg_catalog.set_config('posthaste.went', gone || ' ' || reached, true);
    exception when lock_not_available then
        perform pg_catalog.set_config('posthaste.went', 'in use', true);
    end;
end
$retention$;
select pg_catalog.current_setting('posthaste.went') as went;
