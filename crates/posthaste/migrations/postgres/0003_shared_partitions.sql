-- Relays share a destination's partitions: each partition lies in one cursor group, and whoever owns the group's row
-- may move it. Relays that were built before this cannot work on it.

insert into posthaste.settings (name, value) values
    -- The lowest version of a relay that may run here (major.minor.patch). Raise it once a rolling upgrade is over.
    ('min_relay', '0.1.0'),
    -- Whether writers hint to idle relays that there is something to read.
    ('notify', 'off');

-- One transaction at a time hints, the others pass by: a commit that notifies takes a lock of the whole database.
create function posthaste.hint() returns trigger
language plpgsql volatile security invoker
set search_path = pg_catalog, pg_temp
as $$
begin
    if pg_try_advisory_xact_lock(hashtextextended('posthaste.hint', 0)) then
        perform pg_notify('posthaste', '');
    end if;
    return null;
end
$$;

alter table posthaste.destinations
    -- How many its slots are cut into; a changed setting is followed by the relays, claim by claim.
    add column partitions integer check (partitions between 1 and 4096 and (partitions & (partitions - 1)) = 0),
    -- The last one that a claim was given.
    add column epoch bigint not null default 0,
    -- Raised whenever another look at who owns what is worth its while.
    add column shares_version bigint not null default 0;

update posthaste.destinations d
set partitions = coalesce(
        (select max(o.last_partition) + 1 from posthaste.ownership o where o.destination_id = d.id),
        (select s.value::integer from posthaste.settings s where s.name = 'partitions')),
    epoch = coalesce((select max(o.epoch) from posthaste.ownership o where o.destination_id = d.id), 0);

alter table posthaste.destinations alter column partitions set not null;

-- How far a group of a destination's partitions has come, as before, and who may move it.
alter table posthaste.cursors
    drop constraint cursors_pkey,
    -- Never used again, so that a late statement finds nothing.
    add column id bigint generated always as identity primary key,
    -- The registration that owns it; none: free. Whether it is live says posthaste.relays.
    add column relay uuid,
    -- All that a claim owns bears its epoch; only the newest may change anything.
    add column epoch bigint not null default 0,
    -- Nothing is sent before: the rest of a settle time.
    add column not_before timestamptz not null default 'epoch',
    -- Registrations that may still have something under way at the broker.
    add column former uuid[] not null default '{}',
    -- Who owned it last, by registration and name, and whether it lost it because it was fenced; none: never taken since.
    add column left_by uuid,
    add column left_name text,
    add column left_dead boolean not null default false;

-- Each partition is in exactly one cursor group at all times.
create table posthaste.partitions (
    destination_id bigint not null references posthaste.destinations (id),
    partition      integer not null,
    cursor_id      bigint not null references posthaste.cursors (id),
    primary key (destination_id, partition)
) with (fillfactor = 50);

insert into posthaste.partitions (destination_id, partition, cursor_id)
select c.destination_id, p, c.id
from posthaste.cursors c cross join lateral generate_series(c.first_partition, c.last_partition) p;

update posthaste.cursors c
set relay = o.relay, epoch = o.epoch, not_before = o.not_before
from posthaste.ownership o
where o.destination_id = c.destination_id and o.first_partition = c.first_partition;

alter table posthaste.cursors drop column first_partition, drop column last_partition;

create index cursors_destination on posthaste.cursors (destination_id);
create index cursors_relay on posthaste.cursors (relay) where relay is not null;
create index partitions_cursor on posthaste.partitions (cursor_id);

-- Which relays serve a destination, whether they own something of it or not.
create table posthaste.members (
    destination_id bigint not null references posthaste.destinations (id),
    registration   uuid not null references posthaste.relays (registration) on delete cascade,
    partitions_max integer not null,
    leaving        boolean not null default false,
    -- Whether it reached the broker when it last tried; none: it did not try.
    reaches        boolean,
    last_error     text,
    primary key (destination_id, registration)
) with (fillfactor = 50);

create index members_registration on posthaste.members (registration);

alter table posthaste.markers add column slot smallint;

-- As posthaste.outbox has it.
update posthaste.markers m
set slot = (('x' || left(encode(sha256(replace(m.key, E'\\', E'\\\\')::bytea), 'hex'), 4))::bit(16)::integer & 16383)::smallint;

alter table posthaste.markers alter column slot set not null;

-- What was set aside and may be read again.
create index parked_seq on posthaste.parked (destination_id, seq);

-- The name of the relay, which outlives its row.
alter table posthaste.audit add column relay_name text;

-- Who may own may share.
do $$
declare
    relay text;
begin
    for relay in
        select distinct pg_get_userbyid(a.grantee)
        from pg_class c cross join lateral aclexplode(c.relacl) a
        where c.oid = 'posthaste.ownership'::regclass and a.grantee <> c.relowner and a.grantee <> 0
            and a.privilege_type = 'UPDATE'
    loop
        execute format('grant select, insert, update, delete on posthaste.partitions, posthaste.members to %I', relay);
    end loop;
end
$$;

drop table posthaste.ownership;

with fenced as (
    update posthaste.relays set fenced_at = clock_timestamp() where fenced_at is null returning registration, name
)
insert into posthaste.audit (action, detail)
select 'fence', 'relay `' || name || '` (' || registration || '): it does not know the schema''s version 3' from fenced;
