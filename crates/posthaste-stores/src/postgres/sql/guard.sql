-- $1 destination, $2 first partition, $3 epoch, $4 registration, $5 incarnation. The row's lock orders us and a claim:
-- what is changed under an epoch is committed before the epoch rises, or refused.
guard as materialized (
    select o.destination_id, o.first_partition
    from posthaste.ownership o
    join posthaste.relays r on r.registration = o.relay
    join posthaste.incarnation i on i.one and i.outbox_oid = 'posthaste.outbox'::regclass
    where o.destination_id = $1::bigint and o.first_partition = $2::integer
        and o.epoch = $3::bigint and o.relay = $4::uuid and i.token = $5::uuid
        and r.fenced_at is null and r.lease_until > clock_timestamp()
    for share of o
)
