delete from posthaste_members where destination_id = :destination_id and registration = :registration
