-- Mends what an adversary or an unlucky operator could do to an outbox of an earlier version.
-- Relays that were built before this cannot work on it.

with fenced as (
    update posthaste.relays set fenced_at = clock_timestamp() where fenced_at is null returning registration, name
)
insert into posthaste.audit (action, detail)
select 'fence', 'relay `' || name || '` (' || registration || '): it does not know the schema''s version 5' from fenced;
