-- Mends what an adversary or an unlucky operator could do to an outbox of an earlier version.
-- Relays that were built before this cannot work on it.

-- A statement that waits for a lock on the outbox makes all writers wait behind it. Where this
-- migration fails with "canceling statement due to lock timeout", nothing was changed: run it again
-- once the transaction that holds the lock has ended. `posthaste init` does so by itself.
set local lock_timeout = '50ms';

-- Functions that run as a writer: nothing in them is looked up along the writer's search path. SQL bodies are parsed
-- once, here; PL/pgSQL would look its operators up where it runs, unless they are named exactly. (A SET clause would do
-- as well, and costs more than the function itself.)

create or replace function posthaste.uuid_v7() returns uuid
language sql volatile parallel safe
return pg_catalog.encode(
    pg_catalog.set_bit(pg_catalog.set_bit(
        pg_catalog.overlay(
            pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
            pg_catalog.substring(
                pg_catalog.int8send(
                    pg_catalog.floor(extract(epoch from pg_catalog.clock_timestamp()) * 1000)::bigint),
                3),
            1, 6),
        52, 1), 53, 1),
    'hex')::uuid;

create or replace function posthaste.headers_are_valid(headers text[]) returns boolean
language plpgsql immutable parallel safe
as $$
declare
    bytes bigint := 0;
    count integer := pg_catalog.cardinality(headers);
begin
    if pg_catalog.mod(count, 2) operator(pg_catalog.<>) 0
        or pg_catalog.array_ndims(headers) operator(pg_catalog.<>) 1
        or pg_catalog.array_lower(headers, 1) operator(pg_catalog.<>) 1
    then
        return false;
    end if;
    for i in 1 .. count loop
        if pg_catalog.mod(i, 2) operator(pg_catalog.=) 1 and headers[i] is null then
            return false;
        end if;
        bytes := bytes operator(pg_catalog.+) coalesce(pg_catalog.octet_length(headers[i]), 0);
    end loop;
    return bytes operator(pg_catalog.<=) 65536;
end
$$;

create or replace function posthaste.lock_key(key text) returns void
language sql volatile
return pg_catalog.pg_advisory_xact_lock(
    ('x' || pg_catalog.left(
        pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8')), 'hex'), 16
    ))::bit(64)::bigint);

create or replace function posthaste.check_limit(field text, bytes bigint, max_bytes bigint, hint text default null)
returns void
language plpgsql immutable parallel safe
as $$
begin
    if bytes operator(pg_catalog.>) max_bytes then
        raise exception 'posthaste: % has % bytes, the limit is %', field, bytes, max_bytes
            using errcode = 'program_limit_exceeded', hint = coalesce(hint, 'Shorten the value.');
    end if;
end
$$;

create or replace function posthaste.emit(
    topic          text,
    payload        text default null,
    key            text default null,
    type           text default null,
    headers        text[] default null,
    content_type   text default null,
    correlation_id text default null,
    causation_id   text default null,
    tenant_id      text default null,
    traceparent    text default null,
    tracestate     text default null,
    occurred_at    timestamptz default null,
    id             uuid default null,
    lock_key       boolean default false
) returns uuid
language sql volatile security invoker
return posthaste.emit_bytes(topic, pg_catalog.convert_to(payload, 'UTF8'), key, type, headers, content_type,
    correlation_id, causation_id, tenant_id, traceparent, tracestate, occurred_at, id, lock_key);

create or replace function posthaste.emit(
    topic          text,
    payload        json,
    key            text default null,
    type           text default null,
    headers        text[] default null,
    content_type   text default 'application/json',
    correlation_id text default null,
    causation_id   text default null,
    tenant_id      text default null,
    traceparent    text default null,
    tracestate     text default null,
    occurred_at    timestamptz default null,
    id             uuid default null,
    lock_key       boolean default false
) returns uuid
language sql volatile security invoker
return posthaste.emit_bytes(topic, pg_catalog.convert_to(payload::text, 'UTF8'), key, type, headers, content_type,
    correlation_id, causation_id, tenant_id, traceparent, tracestate, occurred_at, id, lock_key);

create or replace function posthaste.emit(
    topic          text,
    payload        jsonb,
    key            text default null,
    type           text default null,
    headers        text[] default null,
    content_type   text default 'application/json',
    correlation_id text default null,
    causation_id   text default null,
    tenant_id      text default null,
    traceparent    text default null,
    tracestate     text default null,
    occurred_at    timestamptz default null,
    id             uuid default null,
    lock_key       boolean default false
) returns uuid
language sql volatile security invoker
return posthaste.emit_bytes(topic, pg_catalog.convert_to(payload::text, 'UTF8'), key, type, headers, content_type,
    correlation_id, causation_id, tenant_id, traceparent, tracestate, occurred_at, id, lock_key);

-- Locks of relays. An advisory lock may be taken by any role that may connect: these need rights.

-- One row a destination; whoever changes who owns what of it locks the row. It is never updated.
create table posthaste.destination_locks (
    destination_id bigint primary key references posthaste.destinations (id)
);

insert into posthaste.destination_locks (destination_id) select id from posthaste.destinations;

-- Always empty, and locked as a whole, which takes no transaction number: whoever creates a
-- destination waits for what retention removes, and the other way round.
create table posthaste.retention_lock (
    one boolean primary key check (one)
);

do $$
declare
    relay text;
begin
    for relay in
        select distinct pg_get_userbyid(a.grantee)
        from pg_class c cross join lateral aclexplode(c.relacl) a
        where c.oid = 'posthaste.cursors'::regclass and a.grantee <> c.relowner and a.grantee <> 0
            and a.privilege_type = 'UPDATE'
    loop
        execute format('grant select, insert, update on posthaste.destination_locks to %I', relay);
        execute format('grant select, update on posthaste.retention_lock to %I', relay);
        execute format('grant delete on posthaste.audit to %I', relay);
    end loop;
end
$$;

-- How delivered events go: a leaf as a whole, or in small deletes, which disturb no reader of a hot
-- standby.
insert into posthaste.settings (name, value) values ('retention_mode', 'truncate');

-- Without a key a publication of all tables lets nobody delete. Numbers of attempts come again when
-- an operator has an event tried once more.
alter table posthaste.attempts add column id bigint generated always as identity primary key;

-- The copy of an event that cannot be read: what is missing in its row is missing here.
alter table posthaste.parked
    alter column event_id drop not null,
    alter column topic drop not null,
    alter column headers drop not null,
    alter column occurred_at drop not null,
    alter column inserted_at drop not null;

-- Eras. A copy (dump, template, pg_upgrade) is another store, with other counters: it goes on in a new era.
alter table posthaste.identity
    add column era integer not null default 1,
    -- The last `seq` of the eras before. What rows up to here say of transactions means nothing in this one.
    add column after_seq bigint not null default 0;

alter table posthaste.identity rename column created_at to began_at;

-- Eras that have ended, and where everything stood.
create table posthaste.eras (
    era               integer primary key,
    store_id          uuid not null,
    system_identifier bigint,
    database_oid      oid not null,
    outbox_oid        oid not null,
    began_at          timestamptz not null,
    ended_at          timestamptz not null default clock_timestamp(),
    last_seq          bigint not null,
    cursors           jsonb
);

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
