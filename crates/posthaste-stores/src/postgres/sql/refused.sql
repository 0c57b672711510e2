-- Why a guard was not met: $1 incarnation.
select exists (
    select from posthaste.incarnation i
    where i.one and i.outbox_oid = 'posthaste.outbox'::regclass and i.token = $1::uuid)
