update posthaste_ownership set registration = null, not_before = max(not_before, :not_before)
where registration = :registration
