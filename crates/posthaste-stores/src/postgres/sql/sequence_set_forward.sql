-- Mends a sequence that was set back. Events written meanwhile may lie below the floors, so that
-- these begin anew at zero, which is always proven. The new epochs and the new token keep every
-- running claim from storing a floor of its own again.
select pg_catalog.setval('posthaste.outbox_seq_seq', greatest({floor}, last_value)) from posthaste.outbox_seq_seq;
update posthaste.destinations set epoch = epoch + 1;
-- Where what an ended era left over is read, the floor says where that ends (`eras.rs`): it is all
-- read again.
update posthaste.cursors c
set floor = case when e.rest then floor else 0 end, floor_min = 0, seq = case when e.rest then 0 else seq end,
    epoch = epoch + 1
from (
    select id, coalesce(pg_catalog.pg_snapshot_xmin(high) = '9223372036854775807'::xid8, false) as rest
    from posthaste.cursors
) e
where c.id = e.id;
update posthaste.markers m
set floor = case when e.rest then floor else 0 end, floor_min = 0, seq = case when e.rest then 0 else seq end
from (
    select destination_id, key, coalesce(pg_catalog.pg_snapshot_xmin(high) = '9223372036854775807'::xid8, false) as rest
    from posthaste.markers
) e
where m.destination_id = e.destination_id and m.key = e.key;
update posthaste.incarnation set token = pg_catalog.gen_random_uuid();
insert into posthaste.audit (action, detail)
values ({action:sequence}, pg_catalog.format({detail:sequence}, {sequence}, {floor}));
