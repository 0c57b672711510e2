-- Which places of its destinations a relay holds back.

alter table posthaste_relays
    -- As of its last renewal: a JSON object by the destination's name, or nothing.
    add column places text not null default '';
