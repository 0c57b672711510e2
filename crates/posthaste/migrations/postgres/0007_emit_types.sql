-- `posthaste.emit` takes keys of type uuid and bigint, and payloads of type bytea, without a cast.

-- Nothing here waits for a lock on the outbox; a limit costs nothing.
set local lock_timeout = '50ms';

-- As before, but for the message about nested headers.
create or replace function posthaste.emit_bytes(
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
        or topic ~ (
            E'[\\u0001-\\u0020\\u007f-\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]'
            collate "C")
    then
        raise exception 'posthaste: topic is invalid: it must not be empty, "." or "..", '
            'nor hold white space or control characters' using errcode = 'invalid_parameter_value';
    end if;
    if headers is not null and cardinality(headers) > 0 then
        if array_ndims(headers) <> 1 then
            raise exception 'posthaste: headers is a nested array (% dimensions); it must be flat: '
                'name, value, name, value, ...', array_ndims(headers)
                using errcode = 'invalid_parameter_value',
                hint = 'Write array[''a'', ''1'', ''b'', ''2''], '
                    'not array[[''a'', ''1''], [''b'', ''2'']].';
        end if;
        if cardinality(headers) % 2 <> 0 then
            raise exception 'posthaste: headers must be one array of name, value, name, value, '
                '...; it has % elements', cardinality(headers)
                using errcode = 'invalid_parameter_value';
        end if;
        perform posthaste.check_limit('headers', octet_length(array_to_string(headers, '')), 65536);
    end if;
    -- One cheap test for the usual case; the words are only looked for when something is wrong.
    if greatest(octet_length(topic) - 249, octet_length(key) - 1024, octet_length(tracestate) - 512,
                octet_length(payload) - least(max_payload_bytes, 67108864),
                greatest(octet_length(type), octet_length(content_type), octet_length(tenant_id),
                         octet_length(correlation_id), octet_length(causation_id),
                         octet_length(traceparent)) - 255) > 0
    then
        perform posthaste.check_limit('payload', octet_length(payload),
            least(max_payload_bytes, 67108864),
            'Raise posthaste.max_payload_bytes (up to 67108864) for the session, role or '
            'database.');
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

-- Overloads, one for each pair of types. Of several that fit, PostgreSQL takes one with text for a
-- literal, or a parameter, that has no type: calls without types go where they went before. A key
-- that is no text has no default, so a call without a key has one candidate for each payload.
-- Behind a payload with a default it would need one, too: a tombstone with such a key says `null`.
-- A key of any type would take times as well, whose text follows settings.
do $$
declare
    made record;
begin
    for made in
        select f.name, f.payload, f.bytes, f.content_type, k.type as key, k.bound
        from (values
            ('emit', 'text', 'pg_catalog.convert_to(payload, ''UTF8'')', null),
            ('emit', 'json', 'pg_catalog.convert_to(payload::text, ''UTF8'')', 'application/json'),
            ('emit', 'jsonb', 'pg_catalog.convert_to(payload::text, ''UTF8'')', 'application/json'),
            ('emit', 'bytea', 'payload', null),
            ('emit_bytes', 'bytea', 'payload', null)
        ) f (name, payload, bytes, content_type)
        cross join (values ('text', 'default null'), ('uuid', ''), ('bigint', '')) k (type, bound)
        where k.type <> 'text' or f.name = 'emit' and f.payload = 'bytea'
    loop
        execute format(
            'create function posthaste.%I(
                topic          text,
                payload        %s,
                key            %s %s,
                type           text default null,
                headers        text[] default null,
                content_type   text default %L,
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
            return posthaste.emit_bytes(topic, %s, key::text, type, headers, content_type,
                correlation_id, causation_id, tenant_id, traceparent, tracestate, occurred_at, id,
                lock_key)',
            made.name, made.payload, made.key, made.bound, made.content_type, made.bytes);
    end loop;
end
$$;

create function posthaste.lock_key(key uuid) returns void
language sql volatile
return posthaste.lock_key(key::text);

create function posthaste.lock_key(key bigint) returns void
language sql volatile
return posthaste.lock_key(key::text);

-- Each may be called by those who may call the function that it stands beside, or writes with.
do $$
declare
    made record;
    given record;
begin
    for made in
        select m.oid::regprocedure as function, b.proacl, b.proowner
        from pg_proc m join pg_proc b on b.pronamespace = m.pronamespace and b.oid <> m.oid
            and b.pronargs = m.pronargs and b.proargnames = m.proargnames
            and b.proargtypes[array_position(b.proargnames, 'key') - 1] = 'text'::regtype
        where m.pronamespace = 'posthaste'::regnamespace and (
            m.proname = 'lock_key' and b.proname = 'lock_key'
            or m.proname in ('emit', 'emit_bytes') and b.proargtypes[1] = m.proargtypes[1]
                and b.proname = case m.proargtypes[1]
                    when 'bytea'::regtype then 'emit_bytes' else 'emit' end)
    loop
        execute format('revoke all on function %s from public', made.function);
        for given in
            select case a.grantee when 0 then 'public' else a.grantee::regrole::text end as role,
                case when a.is_grantable then 'with grant option' else '' end as options
            from aclexplode(coalesce(made.proacl, acldefault('f', made.proowner))) a
            where a.grantee <> made.proowner
        loop
            execute format('grant execute on function %s to %s %s',
                           made.function, given.role, given.options);
        end loop;
    end loop;
end
$$;
