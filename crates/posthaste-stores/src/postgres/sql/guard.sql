-- $1 destination, $2 cursor, $3 epoch, $4 registration, $5 incarnation. All rows of a claim bear
-- its epoch and are revoked together, so that one of them speaks for all. The row's lock orders us
-- and a claim or a revocation: a change under an epoch is committed before the epoch rises, or
-- refused.
guard as materialized (
    select c.id as cursor_id, c.destination_id
    from posthaste.cursors c
    join posthaste.relays r on r.registration = c.relay
    join posthaste.incarnation i on i.one and i.outbox_oid = 'posthaste.outbox'::regclass
    where c.destination_id = $1::bigint and c.id = $2::bigint
        and c.epoch = $3::bigint and c.relay = $4::uuid and i.token = $5::uuid
        and r.fenced_at is null and r.lease_until > clock_timestamp()
    for share of c
)
