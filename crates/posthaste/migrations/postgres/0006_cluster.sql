-- Which cluster of brokers a destination is delivered to.

-- Running relays wait behind this change no longer than writers would: `posthaste init` tries it again.
set local lock_timeout = '50ms';

alter table posthaste.destinations
    -- What the cluster calls itself, as a relay found it last; none where its kind of broker has no such name.
    add column cluster text;
