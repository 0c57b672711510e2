-- $1 destination, $2 low, $3 high, $4 last, $5 until (within the segment of last + 1), $6 keys of
-- order, $7 whether only the rests are read, $8 whether topics belong to those keys: rows in the
-- differences in which the keys' markers stand. Rows that a marker has passed do not come. "Is true"
-- keeps the list of keys a hash table; a limit of one keeps the marker's look-up behind it.
{header}
union all
(select
    o.seq, o.id, o.topic, o.key, o.type, o.content_type, o.payload, o.headers, o.occurred_at, o.inserted_at,
    o.correlation_id, o.causation_id, o.tenant_id, o.traceparent, o.tracestate, o.slot
from posthaste.outbox o
cross join lateral (
    select m.key
    from posthaste.markers m
    where m.destination_id = $1::bigint and m.key = case when $8::boolean then {order_key} else o.key end
        -- Retention may have copied rows that the marker's snapshots do not see.
        and o.seq > m.floor_min
        and not pg_catalog.pg_visible_in_snapshot(o.xid, m.low)
        -- Whether it is part of the rest. That of an ended era goes up to the marker's floor
        -- (`eras.rs`).
        and case when pg_catalog.pg_visible_in_snapshot(o.xid, m.high)
                and (o.seq <= m.floor or m.high::text <> '9223372036854775807:9223372036854775807:')
            -- The rest of another difference than the one that is read was read before.
            then o.seq > m.seq and ($7::boolean or m.high::text = $3::pg_snapshot::text)
            else not $7::boolean end
    limit 1
) behind
where o.seq > $4::bigint and o.seq <= $5::bigint
    and (case when $8::boolean then {order_key} else o.key end
        in (select u.key from unnest($6::text[]) u (key))) is true
    and not pg_catalog.pg_visible_in_snapshot(o.xid, $2::pg_snapshot)
    and ($7::boolean or pg_catalog.pg_visible_in_snapshot(o.xid, $3::pg_snapshot))
order by o.seq
limit {limit})
