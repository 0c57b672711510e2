-- $1 cursor, $2 partitions. They get a free row of their own, at the same place.
with apart as (
    insert into posthaste.cursors
        (destination_id, low, high, seq, floor, floor_min, epoch, not_before, former, left_by, left_name, left_dead)
    select c.destination_id, c.low, c.high, c.seq, c.floor, c.floor_min, c.epoch, c.not_before, c.former,
        c.left_by, c.left_name, c.left_dead
    from posthaste.cursors c where c.id = $1::bigint
    returning id, destination_id
), repointed as (
    update posthaste.partitions p set cursor_id = a.id
    from apart a
    where p.destination_id = a.destination_id and p.cursor_id = $1::bigint and p.partition = any($2::integer[])
)
select id from apart
