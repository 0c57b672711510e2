-- Which cluster of brokers a destination is delivered to, and how fast.

alter table posthaste_destinations
    -- What the cluster calls itself, as a relay found it last; none where its kind of broker has no
    -- such name.
    add column cluster text;

alter table posthaste_relays
    -- Events that its destinations accepted in a second, by their names, as of its last renewal: a
    -- JSON object.
    add column rates text not null default '{}';
