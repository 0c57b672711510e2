-- Which places of its destinations a relay holds back, and which an operator has paused.

alter table posthaste_relays
    -- As of its last renewal: a JSON object by the destination's name, or nothing.
    add column places text not null default '';

alter table posthaste_destinations
    -- A JSON array of names.
    add column paused_places text not null default '[]';
