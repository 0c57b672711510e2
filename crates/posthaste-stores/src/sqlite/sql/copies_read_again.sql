-- A destination that begins at the oldest event sends these itself, from the outbox: tried again,
-- the copies that removed destinations of its name left would be sent a second time.
update posthaste_parked set state = 'discarded', closed_at = :now, payload = null
where id in (
    select p.id
    from posthaste_destinations as d
    join posthaste_parked as p on p.destination_id = d.id and p.state = 'skipped'
    join posthaste_outbox as o on o.seq = p.seq and o.id is p.event_id
    where d.name = :name and d.state = 'removed'
    limit :limit)
