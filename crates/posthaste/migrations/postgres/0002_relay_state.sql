-- What relays keep: who may move which cursor, how far each destination has come, what is set aside.
-- Private to relays; only posthaste.outbox and the functions beside it are a contract for others.

insert into posthaste.settings (name, value) values
    ('partitions', '64'),
    ('retention_seconds', '86400');

-- Which store this is. A copy (dump, template, pg_upgrade) carries the row along, and differs in what it says.
create table posthaste.identity (
    one               boolean primary key default true check (one),
    store_id          uuid not null default gen_random_uuid(),
    -- None where the server does not let us read it.
    system_identifier bigint,
    database_oid      oid not null,
    outbox_oid        oid not null,
    created_at        timestamptz not null default clock_timestamp()
);

do $$
declare
    server bigint;
begin
    if has_function_privilege('pg_catalog.pg_control_system()', 'execute') then
        select system_identifier into server from pg_catalog.pg_control_system();
    end if;
    insert into posthaste.identity (system_identifier, database_oid, outbox_oid)
    select server, d.oid, 'posthaste.outbox'::regclass from pg_catalog.pg_database d where d.datname = current_database();
end
$$;

-- The life of the database's counters. Unlogged: empty after a crash, a promotion and a physical restore, that is
-- whenever transaction numbers and `seq` may be issued a second time.
create unlogged table posthaste.incarnation (
    one        boolean primary key default true check (one),
    token      uuid not null,
    -- A dump copies the token; the oid tells.
    outbox_oid oid not null
);

insert into posthaste.incarnation (token, outbox_oid) values (gen_random_uuid(), 'posthaste.outbox'::regclass);

create table posthaste.destinations (
    -- Never used again, so that a late statement of a removed destination's relay finds nothing.
    id         bigint generated always as identity primary key,
    name       text not null,
    state      text not null default 'active' check (state in ('active', 'paused', 'removed')),
    breaker    text not null default 'closed',
    last_error text,
    -- The sink's URL without secrets, as the last claim named it.
    address    text not null default '',
    created_at timestamptz not null default clock_timestamp(),
    removed_at timestamptz
);

create unique index destinations_name on posthaste.destinations (name) where state <> 'removed';

-- One row a life of a relay; a restart is a new row.
create table posthaste.relays (
    registration    uuid primary key,
    name            text not null,
    version         text not null,
    lease_until     timestamptz not null,
    fenced_at       timestamptz,
    fenced_by       uuid,
    boot_id         text not null,
    pid_namespace   text not null,
    pid             bigint not null,
    process_started bigint not null,
    started_at      timestamptz not null default clock_timestamp()
) with (fillfactor = 50);

-- Who may move the cursors of a range of a destination's partitions (both ends included).
create table posthaste.ownership (
    destination_id  bigint not null references posthaste.destinations (id),
    first_partition integer not null,
    last_partition  integer not null check (last_partition >= first_partition),
    -- The registration that holds it; none: released. Whether it is live says posthaste.relays.
    relay           uuid,
    -- Raised by every claim; only the newest may change anything.
    epoch           bigint not null default 0,
    -- Nothing is sent before: the rest of a settle time.
    not_before      timestamptz not null default 'epoch',
    primary key (destination_id, first_partition)
) with (fillfactor = 50);

-- How far a range of a destination's partitions has come: all that `low` sees, plus of the difference to `high`
-- everything up to `seq`. Each partition is covered by exactly one row at all times.
create table posthaste.cursors (
    destination_id  bigint not null references posthaste.destinations (id),
    first_partition integer not null,
    last_partition  integer not null check (last_partition >= first_partition),
    low             pg_snapshot not null,
    high            pg_snapshot,
    seq             bigint check ((seq is null) = (high is null)),
    -- No row of a transaction numbered at or above xmax(low) has a `seq` at or below this.
    floor           bigint not null,
    -- No row that `low` does not see has a `seq` at or below this.
    floor_min       bigint not null check (floor_min <= floor),
    updated_at      timestamptz not null default clock_timestamp(),
    primary key (destination_id, first_partition)
) with (fillfactor = 50);

-- A blocked key: all of it before this place is accepted or parked; what lies behind only its side read sends.
create table posthaste.markers (
    destination_id bigint not null references posthaste.destinations (id),
    key            text not null,
    low            pg_snapshot not null,
    high           pg_snapshot,
    seq            bigint check ((seq is null) = (high is null)),
    floor          bigint not null,
    floor_min      bigint not null check (floor_min <= floor),
    since          timestamptz not null default clock_timestamp(),
    primary key (destination_id, key)
);

-- Events set aside after they failed, copied so that nothing pins the outbox.
create table posthaste.parked (
    id             bigint generated always as identity primary key,
    destination_id bigint not null references posthaste.destinations (id),
    state          text not null check (state in ('parked', 'dead', 'skipped', 'discarded', 'delivered')),
    attempts       integer not null,
    kind           text not null,
    reason         text not null,
    parked_at      timestamptz not null default clock_timestamp(),
    due_at         timestamptz check (due_at is null or state = 'parked'),
    settled_at     timestamptz,
    seq            bigint not null,
    event_id       uuid not null,
    slot           smallint not null,
    topic          text not null,
    key            text,
    type           text,
    content_type   text,
    payload        bytea,
    headers        text[] not null,
    occurred_at    timestamptz not null,
    inserted_at    timestamptz not null,
    correlation_id text,
    causation_id   text,
    tenant_id      text,
    traceparent    text,
    tracestate     text
);

create index parked_due on posthaste.parked (destination_id, due_at, id) where state = 'parked';
create index parked_waiting on posthaste.parked (destination_id, key) where state in ('parked', 'dead');
create index parked_settled on posthaste.parked (settled_at) where state in ('skipped', 'discarded', 'delivered');

create table posthaste.attempts (
    parked_id bigint not null references posthaste.parked (id),
    attempt   integer not null,
    at        timestamptz not null default clock_timestamp(),
    kind      text not null,
    reason    text not null
);

create index attempts_parked on posthaste.attempts (parked_id);

-- Everything noteworthy that was done to deliveries, by relays and by people.
create table posthaste.audit (
    id          bigint generated always as identity primary key,
    at          timestamptz not null default clock_timestamp(),
    relay       uuid,
    action      text not null,
    destination text,
    detail      text not null default ''
);
