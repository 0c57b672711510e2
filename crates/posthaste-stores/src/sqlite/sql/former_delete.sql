delete from posthaste_former where destination_id = :destination_id and registration = :registration
