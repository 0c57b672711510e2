-- $1 registration, $2 microseconds for which bytes of an aborted lane may still arrive. A fenced relay releases nothing:
-- whoever takes over from it has to settle.
with myself as (
    select registration from posthaste.relays where registration = $1::uuid and fenced_at is null
    for update
), released as (
    update posthaste.ownership o
    set relay = null,
        not_before = case when $2::bigint > 0
            then greatest(o.not_before, clock_timestamp() + $2::bigint * interval '1 microsecond')
            else o.not_before end
    from myself where o.relay = myself.registration
)
delete from posthaste.relays r using myself where r.registration = myself.registration
