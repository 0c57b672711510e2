-- Mends what an adversary or an unlucky operator could do to an outbox of an earlier version.
-- Relays that were built before this cannot work on it.

-- A statement that waits for a lock on the outbox makes all writers wait behind it. Where this
-- migration fails with "canceling statement due to lock timeout", nothing was changed: run it again
-- once the transaction that holds the lock has ended. `posthaste init` does so by itself.
set local lock_timeout = '50ms';

-- Hints of writers to idle relays. An idle relay that listens holds the first lock in share mode. A
-- commit that notifies takes a lock of the whole database: writers notify for such a relay alone, one
-- writer at a time. That one holds the second lock, whose number changes ten times a second: a
-- transaction that stays open silences the others for a tenth of a second. A transaction that has
-- notified cannot be prepared: there are no hints where two-phase commits are allowed. Its commit
-- fails where the queue of notifications is full: there are none beyond half of it. The trigger
-- fires before the rows, and has neither a WHEN nor a SET clause, because these cost writers more.
create or replace function posthaste.hint() returns trigger
language plpgsql volatile security invoker
as $$
begin
    if (case when pg_catalog.pg_try_advisory_lock(8101821198467952244)
        then not pg_catalog.pg_advisory_unlock(8101821198467952244) else true end)
    then
        if pg_catalog.current_setting('max_prepared_transactions') operator(pg_catalog.=) '0'
            and pg_catalog.pg_notification_queue_usage() operator(pg_catalog.<) 0.5::double precision
            and pg_catalog.pg_try_advisory_xact_lock(1885890665,
                (pg_catalog.date_part('second', pg_catalog.clock_timestamp())
                    operator(pg_catalog.*) 10)::integer)
        then
            perform pg_catalog.pg_notify('posthaste', '');
        end if;
    end if;
    return null;
end
$$;

-- The setting says whether relays listen. An outbox that was never used counts as new.
update posthaste.settings set value = 'on'
where name = 'notify' and not (select s.is_called from posthaste.outbox_seq_seq s)
    and not exists (select from posthaste.destinations);

-- Stays the last statement that locks the outbox: writers wait from here until the commit.
create or replace trigger hint before insert on posthaste.outbox
for each statement execute function posthaste.hint();

with fenced as (
    update posthaste.relays set fenced_at = clock_timestamp() where fenced_at is null returning registration, name
)
insert into posthaste.audit (action, detail)
select 'fence', 'relay `' || name || '` (' || registration || '): it does not know the schema''s version 5' from fenced;
