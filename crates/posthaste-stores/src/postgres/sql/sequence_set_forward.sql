-- Mends a sequence that was set back. Events written meanwhile may lie below the floors, so that these begin anew at
-- zero, which is always proven. The new epochs and the new token keep every running claim from storing a floor of its
-- own again.
select pg_catalog.setval('posthaste.outbox_seq_seq', greatest({floor}, last_value)) from posthaste.outbox_seq_seq;
update posthaste.destinations set epoch = epoch + 1;
update posthaste.cursors set floor = 0, floor_min = 0, epoch = epoch + 1;
update posthaste.markers set floor = 0, floor_min = 0;
update posthaste.incarnation set token = pg_catalog.gen_random_uuid();
insert into posthaste.audit (action, detail)
values ('sequence', 'set forward from {sequence} to {floor}: every place looks at the whole outbox once');
