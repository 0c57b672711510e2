-- Which cluster of brokers a destination is delivered to, and how fast.

-- Running relays wait behind this change no longer than writers would: `posthaste init` tries it
-- again.
set local lock_timeout = '50ms';

alter table posthaste.destinations
    -- What the cluster calls itself, as a relay found it last; none where its kind of broker has no
    -- such name.
    add column cluster text;

alter table posthaste.relays
    -- Events that its destinations accepted in a second, as of its last renewal: their names, and as
    -- many numbers.
    add column rated text[] not null default '{}',
    add column rates float8[] not null default '{}';
