-- Its lease is not over. One that ends later than any that is given now was given before the clock was
-- set back: its relay renews it soon, or is gone.
    r.fenced_at is null and r.left_at is null
    and r.lease_expires_at > :now and r.lease_expires_at <= :now + r.lease
