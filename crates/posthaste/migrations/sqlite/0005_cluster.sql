-- Which cluster of brokers a destination is delivered to.

alter table posthaste_destinations
    -- What the cluster calls itself, as a relay found it last; none where its kind of broker has no such name.
    add column cluster text;
