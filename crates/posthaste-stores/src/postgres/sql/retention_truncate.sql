-- One leaf, in one round trip: a relay that is stopped in the middle of it holds no lock. A setting
-- tells the outcome, since a block answers no rows.
set local statement_timeout = '5s';
-- Others that wait for the leaf wait for us: no longer than this, and our commit waits for no
-- standby.
set local lock_timeout = '50ms';
set local synchronous_commit = local;
do $retention$
declare
    greatest_seq bigint;
    least_seq bigint;
    bytes bigint;
    due boolean;
begin
    perform pg_catalog.set_config('posthaste.went', 'another', true);
{retention_lock}    -- A change of the mode waits for the lock that we have.
    if (select s.value from posthaste.settings s where s.name = 'retention_mode') = 'delete' then
        perform pg_catalog.set_config('posthaste.went', 'kept', true);
        return;
    end if;
    begin
        -- No transaction is open any more that has written into the leaf, ...
        lock table only posthaste.{leaf} in access exclusive mode;
        -- ... and each statement from here on sees what all of them have committed, and every
        -- destination.
        select o.seq, {past_window} and coalesce(o.seq <= {floor}, false) into greatest_seq, due
        from only posthaste.{leaf} o order by o.seq desc limit 1;
        if due is not true then
            perform pg_catalog.set_config('posthaste.went', 'kept', true);
            return;
        end if;
        select o.seq into least_seq from only posthaste.{leaf} o order by o.seq limit 1;
        bytes := pg_catalog.pg_total_relation_size('posthaste.{leaf}');
        truncate only posthaste.{leaf};
        bytes := bytes - pg_catalog.pg_total_relation_size('posthaste.{leaf}');
        insert into posthaste.audit (relay, action, detail)
        values ({relay}, {action:truncate},
            pg_catalog.format({detail:truncate}, '{leaf}', least_seq, greatest_seq, bytes));
        perform pg_catalog.set_config('posthaste.went', least_seq || ' ' || greatest_seq || ' ' || bytes, true);
    exception when lock_not_available then
        perform pg_catalog.set_config('posthaste.went', 'in use', true);
    end;
end
$retention$;
select pg_catalog.current_setting('posthaste.went') as went;
