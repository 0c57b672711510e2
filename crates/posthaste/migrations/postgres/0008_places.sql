-- Which places of its destinations a relay holds back, and which an operator has paused.

-- Running relays wait behind this change no longer than writers would: `posthaste init` tries it
-- again.
set local lock_timeout = '50ms';

alter table posthaste.relays
    -- As of its last renewal: a JSON object by the destination's name, or nothing.
    add column places text not null default '';

alter table posthaste.destinations
    add column paused_places text[] not null default '{}';
