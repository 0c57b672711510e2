-- Events that wait behind a refused one of their key are copied as well where they keep the ring from being emptied.
-- Relays that were built before this would pass these copies by.

alter table posthaste.parked
    -- A copy that retention made. Until its first attempt it has no time of its own: its turn comes when nothing
    -- earlier of its key waits.
    add column evacuated boolean not null default false;

-- What waits of a key, in its order.
drop index posthaste.parked_waiting;
create index parked_waiting on posthaste.parked (destination_id, key, id) where state in ('parked', 'dead');

with fenced as (
    update posthaste.relays set fenced_at = clock_timestamp() where fenced_at is null returning registration, name
)
insert into posthaste.audit (action, detail)
select 'fence', 'relay `' || name || '` (' || registration || '): it does not know the schema''s version 4' from fenced;
