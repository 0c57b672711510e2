insert into posthaste_former (destination_id, registration) values (:destination_id, :registration)
on conflict do nothing
