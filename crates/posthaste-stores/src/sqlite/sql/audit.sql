insert into posthaste_audit (at, action, destination, registration, event_id, detail)
values (:now, :action, :destination, :registration, :event_id, :detail)
