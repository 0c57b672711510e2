-- $1 destination, $2 and $3 slots (see slots.sql), $4 epoch, $5 registration. Nothing that the
-- claim's cursors have not passed has a `seq` at or below their floors; rows that retention copied
-- they have passed. Last a row with the number of those without a key that were put off and wait.
select p.seq, coalesce(p.event_id, '00000000-0000-0000-0000-000000000000'::uuid) as event_id,
    null::bigint as put_off_alone
from posthaste.parked p
where p.destination_id = $1::bigint and not p.evacuated
    and p.seq > (
        select min(c.floor_min) from posthaste.cursors c
        where c.destination_id = $1::bigint and c.epoch = $4::bigint and c.relay = $5::uuid)
    and ($2::bytea is null or pg_catalog.get_bit($2::bytea, (p.slot >> $3::integer)::bigint) = 1)
union all
select null, null, count(*)
from posthaste.parked p
where p.destination_id = $1::bigint and p.state = 'parked' and p.key is null and p.kind = 'not_now'
    and ($2::bytea is null or pg_catalog.get_bit($2::bytea, (p.slot >> $3::integer)::bigint) = 1)
