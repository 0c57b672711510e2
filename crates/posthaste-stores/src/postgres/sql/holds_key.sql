-- It waits, and its key waits for it. A skipped event that is tried again keeps its time of
-- settling: its key has gone on.
    p.state in ('parked', 'dead') and p.settled_at is null
