-- $1 destination, $2 by, $3 settle in microseconds. Frees all that dead relays own, in one
-- statement.
with dead as (
    select c.id, c.relay, coalesce(r.name, '') as name
    from posthaste.cursors c
    left join posthaste.relays r on r.registration = c.relay
    where c.destination_id = $1::bigint and c.relay is not null and c.relay <> $2::uuid
        and (r.registration is null or r.fenced_at is not null)
), revoked as (
    update posthaste.cursors c
    set relay = null, epoch = d.epoch + 1,
        not_before = case when $3::bigint > 0
            then greatest(c.not_before, clock_timestamp() + $3::bigint * interval '1 microsecond')
            else c.not_before end,
        former = array_append(array_remove(c.former, dead.relay), dead.relay),
        left_by = dead.relay, left_name = dead.name, left_dead = true
    from dead, posthaste.destinations d
    where c.id = dead.id and d.id = c.destination_id
    returning c.id
), gone as (
    delete from posthaste.members m
    using posthaste.relays r
    where m.destination_id = $1::bigint and r.registration = m.registration and r.fenced_at is not null
    returning m.registration
)
update posthaste.destinations d set epoch = d.epoch + 1, shares_version = d.shares_version + 1
where d.id = $1::bigint and (exists (select from revoked) or exists (select from gone))
