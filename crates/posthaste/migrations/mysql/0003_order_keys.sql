-- A destination may keep the order of a key and a topic: both make the key of what waits for it.

alter table posthaste_markers
    modify `key` varbinary(1280) not null;

alter table posthaste_parked
    modify `key` varbinary(1280);
