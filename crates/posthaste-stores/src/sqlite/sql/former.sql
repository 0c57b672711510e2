select registration from posthaste_former where destination_id = :destination_id order by registration
