update posthaste_ownership set registration = null, cursor_id = null, epoch = epoch + 1 where destination_id = :id
