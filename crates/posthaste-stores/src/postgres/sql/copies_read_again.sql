-- $1 name, $2 how many at the most. A destination that begins at the oldest event sends these
-- itself, from the outbox: tried again, the copies that removed destinations of its name left would
-- be sent a second time. An operator may have mended one of a row that could not be read. One that
-- was created meanwhile may have begun elsewhere.
update posthaste.parked
set state = 'discarded', settled_at = clock_timestamp(), payload = null
where id in (
    select p.id
    from posthaste.destinations d
    join posthaste.parked p
        on p.destination_id = d.id and p.state = 'skipped' and p.kind <> 'undecodable'
    where d.name = $1::text and d.state = 'removed'
        and exists (
            select from posthaste.outbox o where o.seq = p.seq and o.id is not distinct from p.event_id)
        and not exists (
            select from posthaste.destinations n where n.name = $1::text and n.state <> 'removed')
    limit $2::bigint)
