-- Relays see each other: who serves a destination, who is about to stop, who reaches the broker, and whose
-- fences at the broker are still to be taken. Relays that were built before this cannot work on it.

alter table posthaste_relays
    -- It is about to stop.
    add column leaving integer not null default 0;

alter table posthaste_ownership
    -- The registration that owned it last; none once somebody took it.
    add column left_by text;

alter table posthaste_ownership
    -- It lost it because it was fenced.
    add column left_dead integer not null default 0;

-- Which relays serve a destination, whether they own it or not.
create table posthaste_members (
    destination_id integer not null references posthaste_destinations (id),
    registration   text not null,
    partitions_max integer not null,
    -- Whether it reached the broker when it last tried; none: it did not try.
    reaches        integer,
    primary key (destination_id, registration)
) without rowid;

create index posthaste_members_registration on posthaste_members (registration);

-- Registrations that may still have something under way at the broker.
create table posthaste_former (
    destination_id integer not null references posthaste_destinations (id),
    registration   text not null,
    primary key (destination_id, registration)
) without rowid;

-- From now on a line names who did it; whom it was done to stands in its detail.
update posthaste_audit
set detail = 'relay ' || registration || ': ' || coalesce(detail, ''), registration = null
where action = 'fence';

insert into posthaste_audit (at, action, detail)
select cast(unixepoch('subsec') * 1000000 as integer), 'fence',
       'relay `' || name || '` (' || registration || '): it does not know version 3 of the schema'
from posthaste_relays
where fenced_at is null and left_at is null;

update posthaste_relays
set fenced_at = cast(unixepoch('subsec') * 1000000 as integer)
where fenced_at is null and left_at is null;
