insert into posthaste_audit (at, action, destination, registration, relay_name, event_id, detail)
select :now, :action, :destination, :registration,
    (select r.name from posthaste_relays as r where r.registration = :registration),
    :event_id, :detail
