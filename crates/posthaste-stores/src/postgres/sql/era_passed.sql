-- Whether a place of the ending era has passed a row. Numbers of transactions are compared with
-- snapshots of one server.
(o.seq <= p.floor_min
    or pg_catalog.pg_visible_in_snapshot(o.xid, p.low)
    or coalesce(o.seq <= p.seq and pg_catalog.pg_visible_in_snapshot(o.xid, p.high), false))
