-- A destination may keep the order of a key and a topic. A relay that does not know that would pass
-- over what waits there: none starts from now on, and none lives when such a destination is claimed.

alter table posthaste_relays
    -- The newest migration that it was built with.
    add column level integer not null default 0;
