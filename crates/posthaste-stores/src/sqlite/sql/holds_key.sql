-- It waits, and its key waits for it. What was skipped and is tried again keeps its time of closing:
-- its key has gone on.
    p.state in ('parked', 'dead') and p.closed_at is null
