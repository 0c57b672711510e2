-- $6 to $11: places of the claim's rows, an element a row. $12 rows that have come to the place of
-- another one, $13 that one, which takes over their partitions and whatever settles or has to be
-- fenced.
with {guard}, placed as (
    select u.* from guard g, unnest($6::bigint[], $7::pg_snapshot[], $8::pg_snapshot[], $9::bigint[], $10::bigint[],
        $11::bigint[]) u (id, low, high, seq, floor, floor_min)
), merged as (
    select m.* from guard g, unnest($12::bigint[], $13::bigint[]) m (gone, rest)
), repointed as (
    update posthaste.partitions p set cursor_id = m.rest
    from guard g, merged m
    where p.destination_id = g.destination_id and p.cursor_id = m.gone
), deleted as (
    delete from posthaste.cursors c
    using guard g, merged m
    where c.destination_id = g.destination_id and c.id = m.gone
), moved as (
    update posthaste.cursors c
    set low = u.low, high = u.high, seq = u.seq, floor = u.floor, floor_min = u.floor_min, updated_at = clock_timestamp(),
        not_before = greatest(c.not_before, (
            select max(x.not_before) from merged m join posthaste.cursors x on x.id = m.gone where m.rest = c.id)),
        former = array(
            select unnest(c.former)
            union
            select unnest(x.former) from merged m join posthaste.cursors x on x.id = m.gone where m.rest = c.id)
    from guard g, placed u
    where c.destination_id = g.destination_id and c.id = u.id
)
select exists (select from guard) as guarded
