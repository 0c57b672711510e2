select i.store_id, g.ver
from posthaste_identity as i
left join (
    select c.ver
    from posthaste_cursors as c join posthaste_relays as r on r.registration = c.relay
    where c.id = :cursor_id and c.destination_id = :destination_id
        and c.epoch = :epoch and c.relay = :registration
        and r.fenced_at is null
        and r.lease_expires_at > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
) as g on true
where i.only_row = 1
