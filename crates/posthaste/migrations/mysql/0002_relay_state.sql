-- What relays and operators keep beside the outbox. Private: only Posthaste reads and writes these
-- tables. Numbered migrations are never edited after a release.
-- Times are microseconds since 1970 in UTC, by the server's clock. Keys and names are bytes: as
-- text, two that differ in blanks at the end would be equal. All tables have to be on the outbox's
-- own server and of its own engine: a cursor that outlived its events would pass new ones.

insert ignore into posthaste_settings (name, value) values
    ('partitions', '64'),
    ('retention_seconds', '86400');

create table if not exists posthaste_identity (
    only_row   tinyint unsigned not null primary key,
    -- Tells this outbox from any other.
    store_id   char(36) character set ascii collate ascii_bin not null,
    created_at datetime(6) not null default (utc_timestamp(6))
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

insert ignore into posthaste_identity (only_row, store_id) values (1, uuid());

create table if not exists posthaste_destinations (
    -- The id of a removed destination is never used again.
    id             bigint unsigned not null auto_increment primary key,
    name           varbinary(255) not null,
    -- The sink's URL without secrets, as the last claim named it.
    address        text not null,
    state          varchar(16) not null default 'active',
    -- How many its slots are cut into.
    partitions     smallint unsigned not null,
    -- The last one that a claim was given.
    epoch          bigint not null default 0,
    -- Raised whenever another look at who owns what is worth its while.
    shares_version bigint not null default 0,
    -- The breaker and the last error as a relay reported them.
    breaker        varchar(16) not null default 'closed',
    last_error     mediumtext,
    -- What the cluster of brokers calls itself; none where its kind of broker has no such name.
    cluster        text,
    -- A JSON array of names.
    paused_places  mediumtext not null,
    created_at     bigint not null,
    -- Of all of a name only one is not removed.
    kept_name      varbinary(255) generated always as (
        case state when 'removed' then null else name end
    ) stored,
    unique key posthaste_destinations_kept (kept_name),
    key posthaste_destinations_name (name)
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Changes of a destination's ownership go one after another: each locks this row first, then the
-- cursors, by id, then the destination.
create table if not exists posthaste_destination_locks (
    destination_id bigint unsigned not null primary key
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

create table if not exists posthaste_relays (
    registration     char(36) character set ascii collate ascii_bin not null primary key,
    name             varbinary(1024) not null,
    version          varchar(255) not null,
    boot_id          varchar(255) not null,
    pid_namespace    varchar(255) not null,
    pid              bigint unsigned not null,
    process_started  bigint unsigned not null,
    registered_at    bigint not null,
    lease_expires_at bigint not null,
    fenced_at        bigint,
    -- It is about to stop.
    leaving          tinyint not null default 0,
    -- Events that its destinations accepted in a second, by their names: a JSON object.
    rates            mediumtext not null,
    -- Places that it holds back: a JSON object by the destination's name, or nothing.
    places           mediumtext not null
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row for each group of partitions that stand at the same place.
create table if not exists posthaste_cursors (
    -- Never used again, so that a late statement finds nothing.
    id             bigint unsigned not null auto_increment primary key,
    destination_id bigint unsigned not null,
    -- A bit a partition, the first one in the highest bit of the first byte.
    partitions     varbinary(512) not null,
    -- Everything up to this number was seen, ...
    high           bigint unsigned not null,
    -- ... the event there has this id (none: there was no row), ...
    high_id        varbinary(36),
    -- ... and these ranges were not: distances and lengths, 7 bits a byte.
    holes          longblob not null,
    -- Everything up to this number is finished or stands behind a marker.
    floor          bigint unsigned not null,
    -- Counts the changes under claims. A lower one than before tells that the server has lost some.
    ver            bigint not null default 0,
    -- Counts the reads whose events were made durable by it before they were handed out.
    fence          bigint not null default 0,
    -- The registration that owns it; none: free.
    relay          char(36) character set ascii collate ascii_bin,
    -- All that a claim owns bears its epoch; only the newest may change anything.
    epoch          bigint not null default 0,
    -- Nothing is sent before: the rest of a settle time.
    not_before     bigint not null default 0,
    -- Registrations that may still have something under way at the broker: a JSON array.
    former         mediumtext not null,
    -- Who owned it last, and whether it was fenced; none: never taken since.
    left_by        char(36) character set ascii collate ascii_bin,
    left_name      varbinary(1024),
    left_dead      tinyint not null default 0,
    key posthaste_cursors_destination (destination_id),
    key posthaste_cursors_relay (relay),
    key posthaste_cursors_floor (floor)
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Which relays serve a destination, whether they own something of it or not.
create table if not exists posthaste_members (
    destination_id bigint unsigned not null,
    registration   char(36) character set ascii collate ascii_bin not null,
    partitions_max smallint unsigned not null,
    -- Whether it reached the broker when it last tried; none: it did not try.
    reaches        tinyint,
    last_error     mediumtext,
    primary key (destination_id, registration),
    key posthaste_members_registration (registration)
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Everything of the key that the place has seen is accepted or parked; from there on only the side
-- read sends it.
create table if not exists posthaste_markers (
    destination_id bigint unsigned not null,
    `key`          varbinary(1025) not null,
    slot           smallint unsigned not null,
    high           bigint unsigned not null,
    holes          longblob not null,
    floor          bigint unsigned not null,
    since          bigint not null,
    primary key (destination_id, `key`),
    key posthaste_markers_floor (floor)
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

create table if not exists posthaste_parked (
    id             bigint unsigned not null auto_increment primary key,
    destination_id bigint unsigned not null,
    state          varchar(16) not null,
    attempts       int unsigned not null,
    kind           varchar(64) not null,
    reason         mediumtext not null,
    parked_at      bigint not null,
    due_at         bigint,
    closed_at      bigint,
    -- The copy of the event.
    seq            bigint unsigned not null,
    event_id       varbinary(36),
    topic          text not null,
    `key`          varbinary(1025),
    slot           smallint unsigned not null,
    `type`         text,
    content_type   text,
    payload        longblob,
    headers        longtext not null,
    occurred_at    bigint,
    correlation_id text,
    causation_id   text,
    tenant_id      text,
    traceparent    text,
    tracestate     text,
    inserted_at    bigint,
    -- An event is parked once, also when the answer to the first statement was lost.
    unique key posthaste_parked_seq (destination_id, seq),
    key posthaste_parked_due (destination_id, state, due_at, id),
    key posthaste_parked_key (destination_id, `key`, state),
    key posthaste_parked_closed (state, closed_at)
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

create table if not exists posthaste_attempts (
    id        bigint unsigned not null auto_increment primary key,
    parked_id bigint unsigned not null,
    attempt   int unsigned not null,
    at        bigint not null,
    -- `accepted`, or the class of the failure.
    kind      varchar(64) not null,
    reason    mediumtext not null,
    key posthaste_attempts_parked (parked_id, at)
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

create table if not exists posthaste_audit (
    id           bigint unsigned not null auto_increment primary key,
    at           bigint not null,
    action       varchar(64) not null,
    destination  varbinary(255),
    registration char(36) character set ascii collate ascii_bin,
    relay_name   varbinary(1024),
    event_id     varchar(64),
    detail       mediumtext not null
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;
