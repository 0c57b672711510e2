-- A destination may keep the order of a key and a topic. A relay that does not know that would pass
-- over what waits there: none starts from now on, and none lives when such a destination is claimed.

-- Running relays wait behind this change no longer than writers would: `posthaste init` tries it
-- again.
set local lock_timeout = '50ms';

alter table posthaste.relays
    -- The newest migration that it was built with.
    add column level integer not null default 0;
