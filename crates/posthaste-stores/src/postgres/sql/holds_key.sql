-- It waits, and its key waits for it. A skipped event that is tried again keeps its time of
-- settling: its key has gone on. Where markers ask for it, `offset 0` keeps one look-up a marker: a
-- join that is planned with old statistics meets each marker with each copy.
    p.state in ('parked', 'dead') and p.settled_at is null
