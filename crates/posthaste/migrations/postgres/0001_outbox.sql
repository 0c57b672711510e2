-- The outbox: a public contract for writers in every language (docs/sql-contract.md).
-- Numbered migrations are never edited after a release.

-- Who may not create schemas may have been given this one.
do $$
begin
    if pg_catalog.to_regnamespace('posthaste') is null then
        create schema posthaste;
    end if;
end
$$;

create table posthaste.migrations (
    version    integer primary key,
    name       text not null,
    -- The lowest relay level (the newest migration that a relay was built with) that may run beside this one.
    min_relay  integer not null,
    applied_at timestamptz not null default clock_timestamp()
);

create table posthaste.settings (
    name  text primary key,
    value text not null
);

insert into posthaste.settings (name, value) values ('leaf_bits', '{leaf_bits}');

-- 48 bits of milliseconds, then the random bits of a version 4 UUID, with the version raised from 4 to 7.
create function posthaste.uuid_v7() returns uuid
language sql volatile parallel safe
as $$
    select pg_catalog.encode(
        pg_catalog.set_bit(pg_catalog.set_bit(
            pg_catalog.overlay(
                pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
                pg_catalog.substring(
                    pg_catalog.int8send(
                        pg_catalog.floor(extract(epoch from pg_catalog.clock_timestamp()) * 1000)::bigint),
                    3),
                1, 6),
            52, 1), 53, 1),
        'hex')::uuid
$$;

-- A CHECK cannot hold a loop. It is called for rows with headers only.
create function posthaste.headers_are_valid(headers text[]) returns boolean
language plpgsql immutable parallel safe
as $$
declare
    bytes bigint := 0;
    count integer := pg_catalog.cardinality(headers);
begin
    if count % 2 <> 0 or pg_catalog.array_ndims(headers) <> 1 or pg_catalog.array_lower(headers, 1) <> 1 then
        return false;
    end if;
    for i in 1 .. count loop
        if i % 2 = 1 and headers[i] is null then
            return false;
        end if;
        bytes := bytes + coalesce(pg_catalog.octet_length(headers[i]), 0);
    end loop;
    return bytes <= 65536;
end
$$;

create table posthaste.outbox (
    -- First, so that a row's transaction has its number before it draws `seq`: readers rely on that order.
    xid            xid8 not null default pg_current_xact_id(),
    -- `cache 1`: a session that keeps numbers back would draw an old `seq` late.
    seq            bigint not null generated always as identity (cache 1),
    id             uuid not null default posthaste.uuid_v7(),
    topic          text not null,
    key            text,
    type           text,
    content_type   text,
    payload        bytea,
    headers        text[] not null default '{}',
    occurred_at    timestamptz not null default clock_timestamp(),
    correlation_id text,
    causation_id   text,
    tenant_id      text,
    traceparent    text,
    tracestate     text,
    destinations   text[],
    deliver_after  timestamptz,
    expires_at     timestamptz,
    inserted_at    timestamptz not null default clock_timestamp(),
    -- SHA-256 of the key's bytes, the first two big endian, 14 bits. `convert_to` is not immutable; the cast
    -- to bytea is, and reads backslashes as escapes, hence the doubling.
    slot           smallint not null generated always as (
        (('x' || left(encode(sha256(replace(coalesce(key, id::text), E'\\', E'\\\\')::bytea), 'hex'), 4))::bit(16)::integer
            & 16383)::smallint
    ) stored,

    constraint topic_has_1_to_249_bytes check (octet_length(topic) between 1 and 249),
    -- Unicode's white space and control characters, spelled out because character classes follow the locale.
    constraint topic_without_whitespace_or_control_characters check (
        topic !~ (E'[\\u0001-\\u0020\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]' collate "C")
    ),
    constraint topic_is_not_dots check (topic not in ('.', '..')),
    constraint key_has_at_most_1024_bytes check (octet_length(key) <= 1024),
    constraint type_has_at_most_255_bytes check (octet_length(type) <= 255),
    constraint content_type_has_at_most_255_bytes check (octet_length(content_type) <= 255),
    -- The table's ceiling. The library and the functions refuse more than 1 MiB unless told otherwise.
    constraint payload_has_at_most_64_mib check (octet_length(payload) <= 67108864),
    constraint headers_are_pairs_with_names_and_at_most_65536_bytes check (
        headers = '{}' or posthaste.headers_are_valid(headers)
    ),
    constraint occurred_at_is_between_year_1_and_9999 check (
        occurred_at >= '0001-01-01 00:00:00+00' and occurred_at < '10000-01-01 00:00:00+00'
    ),
    constraint correlation_id_has_at_most_255_bytes check (octet_length(correlation_id) <= 255),
    constraint causation_id_has_at_most_255_bytes check (octet_length(causation_id) <= 255),
    constraint tenant_id_has_at_most_255_bytes check (octet_length(tenant_id) <= 255),
    constraint traceparent_has_at_most_255_bytes check (octet_length(traceparent) <= 255),
    constraint tracestate_has_at_most_512_bytes check (octet_length(tracestate) <= 512),
    constraint destinations_not_honoured_yet check (destinations is null),
    constraint deliver_after_not_honoured_yet check (deliver_after is null),
    constraint expires_at_not_honoured_yet check (expires_at is null)
) partition by list (((seq >> {leaf_bits}) & 15));

-- A ring of 16 leaves: no leaf is ever missing, and none is added or removed beside writers.
do $$
begin
    for leaf in 0 .. 15 loop
        execute format('create table posthaste.%I partition of posthaste.outbox for values in (%s)',
                       'outbox_' || lpad(leaf::text, 2, '0'), leaf);
        -- A publication of all tables must not make deletes fail.
        execute format('alter table posthaste.%I replica identity full', 'outbox_' || lpad(leaf::text, 2, '0'));
    end loop;
end
$$;

create index outbox_seq on posthaste.outbox (seq);

-- Takes the transaction's lock on a key: first eight bytes, big endian, of the SHA-256 of its UTF-8 bytes.
create function posthaste.lock_key(key text) returns void
language sql volatile
as $$
    select pg_catalog.pg_advisory_xact_lock(
        ('x' || pg_catalog.left(
            pg_catalog.encode(pg_catalog.sha256(pg_catalog.convert_to(key, 'UTF8')), 'hex'), 16
        ))::bit(64)::bigint)
$$;

create function posthaste.check_limit(field text, bytes bigint, max_bytes bigint, hint text default null) returns void
language plpgsql immutable parallel safe
as $$
begin
    if bytes > max_bytes then
        raise exception 'posthaste: % has % bytes, the limit is %', field, bytes, max_bytes
            using errcode = 'program_limit_exceeded', hint = coalesce(hint, 'Shorten the value.');
    end if;
end
$$;

-- Writes one event and returns its id, which is made before the insert: no right to read is needed.
create function posthaste.emit_bytes(
    topic          text,
    payload        bytea default null,
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
language plpgsql volatile security invoker
set search_path = pg_catalog, pg_temp
as $$
#variable_conflict use_variable
declare
    event_id uuid := coalesce(id, posthaste.uuid_v7());
    -- A setting that was once set locally reads as '' afterwards.
    max_payload_bytes bigint := coalesce(
        nullif(current_setting('posthaste.max_payload_bytes', true), '')::bigint, 1048576);
begin
    if topic is null or topic in ('', '.', '..')
        or topic ~ (E'[\\u0001-\\u0020\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]' collate "C")
    then
        raise exception 'posthaste: topic is invalid: it must not be empty, "." or "..", '
            'nor hold white space or control characters' using errcode = 'invalid_parameter_value';
    end if;
    if headers is not null and cardinality(headers) > 0 then
        if cardinality(headers) % 2 <> 0 or array_ndims(headers) <> 1 then
            raise exception 'posthaste: headers must be one array of name, value, name, value, ...; it has % elements',
                cardinality(headers) using errcode = 'invalid_parameter_value';
        end if;
        perform posthaste.check_limit('headers', octet_length(array_to_string(headers, '')), 65536);
    end if;
    -- One cheap test for the usual case; the words are only looked for when something is wrong.
    if greatest(octet_length(topic) - 249, octet_length(key) - 1024, octet_length(tracestate) - 512,
                octet_length(payload) - least(max_payload_bytes, 67108864),
                greatest(octet_length(type), octet_length(content_type), octet_length(correlation_id),
                         octet_length(causation_id), octet_length(tenant_id), octet_length(traceparent)) - 255) > 0
    then
        perform posthaste.check_limit('payload', octet_length(payload), least(max_payload_bytes, 67108864),
            'Raise posthaste.max_payload_bytes (up to 67108864) for the session, role or database.');
        perform posthaste.check_limit('topic', octet_length(topic), 249);
        perform posthaste.check_limit('key', octet_length(key), 1024);
        perform posthaste.check_limit('type', octet_length(type), 255);
        perform posthaste.check_limit('content_type', octet_length(content_type), 255);
        perform posthaste.check_limit('correlation_id', octet_length(correlation_id), 255);
        perform posthaste.check_limit('causation_id', octet_length(causation_id), 255);
        perform posthaste.check_limit('tenant_id', octet_length(tenant_id), 255);
        perform posthaste.check_limit('traceparent', octet_length(traceparent), 255);
        perform posthaste.check_limit('tracestate', octet_length(tracestate), 512);
    end if;

    if lock_key and key is not null then
        -- A statement of its own, so that the lock is held before the insert draws `seq`.
        perform posthaste.lock_key(key);
    end if;
    insert into posthaste.outbox
        (id, topic, key, type, content_type, payload, headers, occurred_at,
         correlation_id, causation_id, tenant_id, traceparent, tracestate)
    values
        (event_id, topic, key, type, content_type, payload, coalesce(headers, '{}'),
         coalesce(occurred_at, clock_timestamp()),
         correlation_id, causation_id, tenant_id, traceparent, tracestate);
    return event_id;
end
$$;

-- Only this overload may leave the payload out (a tombstone): with one default a call is never ambiguous.
create function posthaste.emit(
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
as $$
    select posthaste.emit_bytes(topic, pg_catalog.convert_to(payload, 'UTF8'), key, type, headers, content_type,
        correlation_id, causation_id, tenant_id, traceparent, tracestate, occurred_at, id, lock_key)
$$;

create function posthaste.emit(
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
as $$
    select posthaste.emit_bytes(topic, pg_catalog.convert_to(payload::text, 'UTF8'), key, type, headers, content_type,
        correlation_id, causation_id, tenant_id, traceparent, tracestate, occurred_at, id, lock_key)
$$;

create function posthaste.emit(
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
as $$
    select posthaste.emit_bytes(topic, pg_catalog.convert_to(payload::text, 'UTF8'), key, type, headers, content_type,
        correlation_id, causation_id, tenant_id, traceparent, tracestate, occurred_at, id, lock_key)
$$;

comment on table posthaste.outbox is
    'Posthaste: append events here, inside your own transaction. A public contract; never update or delete rows.';
