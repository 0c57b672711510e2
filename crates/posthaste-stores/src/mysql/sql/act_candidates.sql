-- Copies that still wait. Skipped ones only to erase them, or to try them again once their key has
-- gone on. A copy that waits for its turn only by its id, since its key is to go on with it.
select p.id, p.event_id, p.seq, d.name
from posthaste_parked as p join posthaste_destinations as d on d.id = p.destination_id
where p.id > :after
    and (d.state <> 'removed' or :discard)
    and (p.state in ('parked', 'dead')
        or p.state = 'skipped' and :state = 'skipped' and :discard
        or p.state = 'skipped' and :state = 'skipped' and :retry and not exists (
            select 1 from posthaste_markers as m
            where m.destination_id = p.destination_id and m.`key` = p.`key`))
    and (p.due_at is not null or p.state in ('dead', 'skipped')
        or (:event_id is not null and :retry = 0))
    and (:destination is null or d.name = :destination)
    and (:event_id is null or p.event_id = :event_id)
    and (:key is null or {is_key})
    and (:state is null or p.state = :state)
order by p.id
limit :limit
for update
