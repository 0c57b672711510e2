-- $1 to $5 as the guard's, which is the very row that is moved: its conditions are tested on the
-- row's newest version. The place: where that version is taken to be, or nothing. Behind an old
-- snapshot nothing of what an index leads to may be removed, so that the way through it gets longer
-- with each advance.
update posthaste.cursors c
set low = $6::pg_snapshot, high = $7::pg_snapshot, seq = $8::bigint, floor = $9::bigint, floor_min = $10::bigint,
    updated_at = clock_timestamp()
from posthaste.relays r, posthaste.incarnation i
where {place}c.destination_id = $1::bigint and c.id = $2::bigint
    and c.epoch = $3::bigint and c.relay = $4::uuid and i.token = $5::uuid
    and r.registration = c.relay and i.one and i.outbox_oid = 'posthaste.outbox'::regclass
    and r.fenced_at is null and r.lease_until > clock_timestamp()
returning c.ctid::text as place
