-- It waits, and its key waits for it. A skipped event that is tried again keeps its time of
-- closing, since its key has gone on.
    p.state in ('parked', 'dead') and p.closed_at is null
