-- How long a lease lasts, so that one that seems to last longer is known to have been given before the clock was
-- set back. Relays that were built before this do not say it.

alter table posthaste_relays
    -- Microseconds.
    add column lease integer not null default 0;

insert into posthaste_audit (at, action, detail)
select cast(unixepoch('subsec') * 1000000 as integer), 'fence',
       'relay `' || name || '` (' || registration || '): it does not know version 4 of the schema'
from posthaste_relays
where fenced_at is null and left_at is null;

update posthaste_relays
set fenced_at = cast(unixepoch('subsec') * 1000000 as integer)
where fenced_at is null and left_at is null;
