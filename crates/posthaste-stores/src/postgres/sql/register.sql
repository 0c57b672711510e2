with pruned as (
    -- Long gone; a week leaves time to look at who fenced whom.
    delete from posthaste.relays r
    where r.lease_until < clock_timestamp() - interval '7 days'
        and not exists (select from posthaste.cursors c where c.relay = r.registration)
)
insert into posthaste.relays
    (registration, name, version, lease_until, boot_id, pid_namespace, pid, process_started, level)
values
    ($1::uuid, $2::text, $3::text, clock_timestamp() + $4::bigint * interval '1 microsecond',
     $5::text, $6::text, $7::bigint, $8::bigint, $9::integer)
