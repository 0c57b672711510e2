-- What relays and operators keep beside the outbox. Private: only Posthaste reads and writes these tables.
-- Numbered migrations are never edited after a release.
-- Times are integers: microseconds since 1970 in UTC, by the clock of the machine that runs SQLite.

insert into posthaste_settings (name, value) values
    ('partitions', '64'),
    ('retention_seconds', '86400');

create table posthaste_identity (
    only_row   integer primary key check (only_row = 1),
    -- Tells this outbox from any other, so that a file that was put in its place is noticed.
    store_id   text not null,
    created_at integer not null
        default (strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000)
);

insert into posthaste_identity (only_row, store_id) values (1, lower(hex(randomblob(16))));

create table posthaste_destinations (
    -- AUTOINCREMENT: the id of a removed destination is never used again.
    id         integer primary key autoincrement,
    name       text not null,
    -- The sink's URL without secrets, as the last claim named it.
    url        text not null,
    state      text not null default 'active' check (state in ('active', 'paused', 'removed')),
    -- The breaker and the last error as the relay reported them, for operators in other processes.
    breaker    text not null default 'closed',
    last_error text,
    created_at integer not null
);

create unique index posthaste_destinations_name on posthaste_destinations (name) where state <> 'removed';

create table posthaste_relays (
    registration     text primary key not null,
    name             text not null,
    version          text not null,
    boot_id          text not null,
    pid_namespace    text not null,
    pid              integer not null,
    process_started  integer not null,
    registered_at    integer not null,
    lease_expires_at integer not null,
    fenced_at        integer,
    left_at          integer
) without rowid;

-- One row for each group of partitions that stand at the same place.
create table posthaste_cursors (
    id             integer primary key autoincrement,
    destination_id integer not null references posthaste_destinations (id),
    -- Everything up to this number is finished or stands behind a marker.
    seq            integer not null
);

create table posthaste_ownership (
    destination_id integer not null references posthaste_destinations (id),
    -- The owned range: first partition, and the one behind the last.
    partition_from integer not null,
    partition_to   integer not null,
    -- The group that covers these partitions; none once the destination was removed.
    cursor_id      integer references posthaste_cursors (id),
    -- Free when none, or when that registration is not live.
    registration   text,
    epoch          integer not null,
    -- Nothing may be sent before this time: bytes of a former owner may still arrive until then.
    not_before     integer not null default 0,
    -- Counts the changes made under claims; going back gives away a file that was restored under a running relay.
    version        integer not null default 0,
    primary key (destination_id, partition_from)
) without rowid;

create index posthaste_ownership_registration on posthaste_ownership (registration);

-- Everything of the key up to `seq` is accepted or parked; from there on only the side read sends it.
create table posthaste_markers (
    destination_id integer not null references posthaste_destinations (id),
    key            text not null,
    seq            integer not null,
    since          integer not null,
    primary key (destination_id, key)
) without rowid;

create table posthaste_parked (
    id             integer primary key autoincrement,
    destination_id integer not null references posthaste_destinations (id),
    state          text not null check (state in ('parked', 'dead', 'skipped', 'discarded', 'delivered')),
    attempts       integer not null,
    kind           text not null,
    reason         text not null,
    parked_at      integer not null,
    due_at         integer,
    closed_at      integer,
    -- The copy of the event.
    seq            integer not null,
    event_id       text not null,
    topic          text not null,
    key            text,
    type           text,
    content_type   text,
    payload        blob,
    headers        text not null,
    occurred_at    integer not null,
    correlation_id text,
    causation_id   text,
    tenant_id      text,
    traceparent    text,
    tracestate     text,
    inserted_at    integer not null,
    -- An event is parked once, also when the answer to the first statement was lost.
    unique (destination_id, seq)
);

create index posthaste_parked_due on posthaste_parked (destination_id, due_at) where state = 'parked';
create index posthaste_parked_waiting on posthaste_parked (destination_id, key) where state in ('parked', 'dead');
create index posthaste_parked_closed on posthaste_parked (closed_at) where state in ('skipped', 'discarded', 'delivered');

create table posthaste_attempts (
    id        integer primary key autoincrement,
    parked_id integer not null references posthaste_parked (id),
    attempt   integer not null,
    at        integer not null,
    -- `accepted`, or the class of the failure.
    kind      text not null,
    reason    text not null
);

create index posthaste_attempts_parked on posthaste_attempts (parked_id);

create table posthaste_audit (
    id           integer primary key autoincrement,
    at           integer not null,
    action       text not null,
    destination  text,
    registration text,
    event_id     text,
    detail       text
);
