-- The outbox: a public contract for writers in every language (docs/sql-contract.md).
-- Numbered migrations are never edited after a release.
-- For MySQL 8.0, MariaDB 10.6 and later ones of both. Each statement commits by itself, and can be
-- run again. Times are in UTC.

create table if not exists posthaste_migrations (
    version    int unsigned not null primary key,
    name       varchar(64) not null,
    -- The lowest relay level (the newest migration that a relay was built with) that may run beside
    -- this one.
    min_relay  int unsigned not null,
    applied_at datetime(6) not null default (utc_timestamp(6))
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

create table if not exists posthaste_settings (
    name  varchar(64) not null primary key,
    value text not null
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

-- Columns take more than the limits allow: where sql_mode is not strict, the server cuts a longer
-- value to the column's size and says nothing, and what is left must still break the limit. MySQL
-- before 8.0.16 reads the checks and ignores them.
create table if not exists posthaste_outbox (
    seq            bigint unsigned not null auto_increment primary key,
    -- A UUID's 16 bytes. The default is version 7: 48 bits of milliseconds, and the hash of a UUID
    -- of version 1 for the random bits.
    id             varbinary(36) not null default (unhex(insert(insert(insert(
        left(sha2(uuid(), 256), 32),
        1, 12, lpad(
            hex(timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) div 1000), 12, '0'
        )),
        13, 1, '7'),
        17, 1, '8'
    ))),
    topic          varchar(250) not null,
    `key`          varchar(1025),
    `type`         varchar(256),
    content_type   varchar(256),
    payload        longblob,
    -- A JSON array of name, value, name, value, ...; a value may be null.
    headers        json not null default (json_array()),
    occurred_at    datetime(6) not null default (utc_timestamp(6)),
    correlation_id varchar(256),
    causation_id   varchar(256),
    tenant_id      varchar(256),
    traceparent    varchar(256),
    tracestate     varchar(513),
    destinations   json,
    deliver_after  datetime(6),
    expires_at     datetime(6),
    inserted_at    datetime(6) not null default (utc_timestamp(6)),
    -- SHA-256 of the key's bytes, or of the id as lower-case text: the first two bytes, big endian,
    -- 14 bits. A function answers in the character set of the connection, hence the conversions.
    slot           smallint unsigned generated always as ((
        ascii(unhex(left(convert(sha2(coalesce(`key`,
            convert(insert(insert(insert(insert(
                lower(hex(id)), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-') using utf8mb4)
        ), 256) using utf8mb4), 2))) * 256
        + ascii(unhex(substr(convert(sha2(coalesce(`key`,
            convert(insert(insert(insert(insert(
                lower(hex(id)), 9, 0, '-'), 14, 0, '-'), 19, 0, '-'), 24, 0, '-') using utf8mb4)
        ), 256) using utf8mb4), 3, 2)))
    ) & 16383) stored,

    constraint id_has_16_bytes check (length(id) = 16),
    constraint topic_has_1_to_249_bytes check (length(topic) between 1 and 249),
    -- Unicode's white space and control characters: the UTF-8 of a class with U+0000-0020 007F-00A0
    -- 1680 2000-200A 2028 2029 202F 205F 3000.
    constraint topic_without_whitespace_or_control_characters check (
        topic regexp convert(
            x'5b002d207f2dc2a0e19a80e280802de2808ae280a82de280a9e280afe2819fe380805d'
            using utf8mb4) = 0
    ),
    constraint topic_is_not_dots check (topic not in ('.', '..')),
    constraint key_has_at_most_1024_bytes_without_nul check (
        length(`key`) <= 1024 and locate(char(0 using utf8mb4), `key`) = 0
    ),
    constraint type_has_at_most_255_bytes_without_nul check (
        length(`type`) <= 255 and locate(char(0 using utf8mb4), `type`) = 0
    ),
    constraint content_type_has_at_most_255_bytes_without_nul check (
        length(content_type) <= 255 and locate(char(0 using utf8mb4), content_type) = 0
    ),
    -- The table's ceiling. The library refuses more than 1 MiB unless told otherwise.
    constraint payload_has_at_most_64_mib check (length(payload) <= 67108864),
    constraint headers_are_pairs check (
        json_type(headers) = 'ARRAY' and mod(json_length(headers), 2) = 0
    ),
    constraint headers_have_at_most_1_mib_of_json check (length(headers) <= 1048576),
    -- The elements of valid JSON, by this pattern, as bytes since it has backslashes:
    --   ^\s*+\[(?:\s*+"(?:[^"\\]++|\\(?!u0000).)*+"\s
    --   *+,\s*+(?:"(?:[^"\\]++|\\(?!u0000).)*+"|null)\s*+[,\]])*+\s*+\]?\s*+$
    -- A longer text could need more steps than the server allows (regexp_time_limit): not checked.
    constraint headers_are_text_or_null_with_names_without_nul check (
        length(headers) > 65536 or headers regexp concat(
            convert(x'5e5c732a2b5c5b283f3a5c732a2b' using utf8mb4),
            convert(x'22283f3a5b5e225c5c5d2b2b7c5c5c283f217530303030292e292a2b22' using utf8mb4),
            convert(x'5c732a2b2c5c732a2b283f3a' using utf8mb4),
            convert(x'22283f3a5b5e225c5c5d2b2b7c5c5c283f217530303030292e292a2b22' using utf8mb4),
            convert(x'7c6e756c6c295c732a2b5b2c5c5d5d292a2b5c732a2b5c5d3f5c732a2b24' using utf8mb4)
        )
    ),
    -- Some values of sql_mode let zero dates in, which are no time.
    constraint occurred_at_is_between_year_1_and_9999 check (
        occurred_at >= '0001-01-01'
        and timestampdiff(microsecond, '1970-01-01', occurred_at) is not null
    ),
    constraint correlation_id_has_at_most_255_bytes_without_nul check (
        length(correlation_id) <= 255 and locate(char(0 using utf8mb4), correlation_id) = 0
    ),
    constraint causation_id_has_at_most_255_bytes_without_nul check (
        length(causation_id) <= 255 and locate(char(0 using utf8mb4), causation_id) = 0
    ),
    constraint tenant_id_has_at_most_255_bytes_without_nul check (
        length(tenant_id) <= 255 and locate(char(0 using utf8mb4), tenant_id) = 0
    ),
    constraint traceparent_has_at_most_255_bytes_without_nul check (
        length(traceparent) <= 255 and locate(char(0 using utf8mb4), traceparent) = 0
    ),
    constraint tracestate_has_at_most_512_bytes_without_nul check (
        length(tracestate) <= 512 and locate(char(0 using utf8mb4), tracestate) = 0
    ),
    constraint destinations_not_honoured_yet check (destinations is null),
    constraint deliver_after_not_honoured_yet check (deliver_after is null),
    constraint expires_at_not_honoured_yet check (expires_at is null)
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

-- One row a slot, for writers that have no row of their own to lock: the row of a key's slot is
-- locked (FOR UPDATE) until the transaction ends. GET_LOCK would outlive the transaction. The rows
-- are never changed, so that no snapshot of a writer is too old for them.
create table if not exists posthaste_key_locks (
    slot smallint unsigned not null primary key
) engine=InnoDB row_format=dynamic default character set utf8mb4 collate utf8mb4_bin;

insert ignore into posthaste_key_locks
with digits (n) as (
    select 0 union all select 1 union all select 2 union all select 3
    union all select 4 union all select 5 union all select 6 union all select 7
    union all select 8 union all select 9 union all select 10 union all select 11
    union all select 12 union all select 13 union all select 14 union all select 15
)
select a.n + 16 * b.n + 256 * c.n + 4096 * d.n
from digits as a cross join digits as b cross join digits as c cross join digits as d
where d.n < 4;
