select id from posthaste_outbox where seq = :seq
