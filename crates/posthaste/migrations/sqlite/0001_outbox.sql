-- The outbox: a public contract for writers in every language (docs/sql-contract.md).
-- Numbered migrations are never edited after a release.
-- Times are integers: microseconds since 1970 in UTC. Written for SQLite 3.38 and later (built-in JSON).

create table posthaste_migrations (
    version    integer primary key,
    name       text not null,
    -- The lowest relay level (the newest migration that a relay was built with) that may run beside this one.
    min_relay  integer not null,
    applied_at integer not null
        default (strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000)
);

create table posthaste_settings (
    name  text primary key not null,
    value text not null
);

create table posthaste_outbox (
    -- AUTOINCREMENT: without it the numbers of deleted rows come again, below the cursor.
    seq            integer primary key autoincrement,
    -- A UUID in its canonical lower-case text form; the default is version 7.
    id             text not null default (lower(
        substr(printf('%012x', strftime('%s', 'now') * 1000 + substr(strftime('%f', 'now'), 4)), 1, 8) || '-'
        || substr(printf('%012x', strftime('%s', 'now') * 1000 + substr(strftime('%f', 'now'), 4)), 9) || '-7'
        || substr(hex(randomblob(2)), 2) || '-'
        || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-'
        || hex(randomblob(6))
    )),
    topic          text not null,
    key            text,
    type           text,
    content_type   text,
    -- A blob, or text for plain SQL writers: its UTF-8 bytes are the payload.
    payload        blob,
    -- A JSON array of name, value, name, value, ...; a value may be null.
    headers        text not null default '[]',
    occurred_at    integer not null
        default (strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000),
    correlation_id text,
    causation_id   text,
    tenant_id      text,
    traceparent    text,
    tracestate     text,
    destinations   text,
    deliver_after  integer,
    expires_at     integer,
    inserted_at    integer not null
        default (strftime('%s', 'now') * 1000000 + substr(strftime('%f', 'now'), 4) * 1000),

    constraint id_is_a_lower_case_uuid check (
        typeof(id) = 'text' and id glob '????????-????-????-????-????????????'
        and length(replace(id, '-', '')) = 32 and id not glob '*[^0-9a-f-]*'
    ),
    constraint topic_has_1_to_249_bytes check (
        typeof(topic) = 'text' and length(cast(topic as blob)) between 1 and 249
    ),
    -- Unicode's white space and control characters; NUL apart, since patterns end at it.
    constraint topic_without_whitespace_or_control_characters check (
        instr(topic, char(0)) = 0
        and topic not glob ('*[' || char(1) || '-' || char(32, 127) || '-' || char(160, 5760, 8192) || '-'
            || char(8202, 8232, 8233, 8239, 8287, 12288) || ']*')
    ),
    constraint topic_is_not_dots check (topic not in ('.', '..')),
    constraint key_is_text_of_at_most_1024_bytes_without_nul check (
        key is null or (typeof(key) = 'text' and length(cast(key as blob)) <= 1024 and instr(key, char(0)) = 0)
    ),
    constraint type_is_text_of_at_most_255_bytes_without_nul check (
        type is null or (typeof(type) = 'text' and length(cast(type as blob)) <= 255 and instr(type, char(0)) = 0)
    ),
    constraint content_type_is_text_of_at_most_255_bytes_without_nul check (
        content_type is null or (typeof(content_type) = 'text'
            and length(cast(content_type as blob)) <= 255 and instr(content_type, char(0)) = 0)
    ),
    -- The table's ceiling. The library refuses more than 1 MiB unless told otherwise.
    constraint payload_is_blob_or_text_of_at_most_64_mib check (
        payload is null or (typeof(payload) in ('blob', 'text') and length(cast(payload as blob)) <= 67108864)
    ),
    constraint headers_are_a_json_array check (
        typeof(headers) = 'text' and json_valid(headers) and json_type(headers) = 'array'
    ),
    constraint occurred_at_is_microseconds_between_year_1_and_9999 check (
        typeof(occurred_at) = 'integer' and occurred_at between -62135596800000000 and 253402300799999999
    ),
    constraint correlation_id_is_text_of_at_most_255_bytes_without_nul check (
        correlation_id is null or (typeof(correlation_id) = 'text'
            and length(cast(correlation_id as blob)) <= 255 and instr(correlation_id, char(0)) = 0)
    ),
    constraint causation_id_is_text_of_at_most_255_bytes_without_nul check (
        causation_id is null or (typeof(causation_id) = 'text'
            and length(cast(causation_id as blob)) <= 255 and instr(causation_id, char(0)) = 0)
    ),
    constraint tenant_id_is_text_of_at_most_255_bytes_without_nul check (
        tenant_id is null or (typeof(tenant_id) = 'text'
            and length(cast(tenant_id as blob)) <= 255 and instr(tenant_id, char(0)) = 0)
    ),
    constraint traceparent_is_text_of_at_most_255_bytes_without_nul check (
        traceparent is null or (typeof(traceparent) = 'text'
            and length(cast(traceparent as blob)) <= 255 and instr(traceparent, char(0)) = 0)
    ),
    constraint tracestate_is_text_of_at_most_512_bytes_without_nul check (
        tracestate is null or (typeof(tracestate) = 'text'
            and length(cast(tracestate as blob)) <= 512 and instr(tracestate, char(0)) = 0)
    ),
    constraint destinations_not_honoured_yet check (destinations is null),
    constraint deliver_after_not_honoured_yet check (deliver_after is null),
    constraint expires_at_not_honoured_yet check (expires_at is null),
    constraint inserted_at_is_microseconds check (typeof(inserted_at) = 'integer')
);

-- A CHECK cannot look into the array. Rows without headers pay nothing.
create trigger posthaste_outbox_headers
before insert on posthaste_outbox
when new.headers is not '[]' and json_valid(new.headers)
begin
    select raise(abort, 'posthaste: headers must be name, value, name, value, ...')
    where json_array_length(new.headers) % 2 <> 0;
    select raise(abort, 'posthaste: header names must be text, header values text or null, both without NUL')
    where exists (
        select 1 from json_each(new.headers) as element
        where (element.type is not 'text' and (element.key % 2 = 0 or element.type is not 'null'))
           or instr(element.value, char(0)) > 0
    );
    select raise(abort, 'posthaste: headers have more than 65536 bytes together')
    where (select sum(length(cast(element.value as blob))) from json_each(new.headers) as element) > 65536;
end;
