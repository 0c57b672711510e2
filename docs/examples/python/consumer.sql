-- What the example consumers write: the inbox, and the effect that happens once for each event.

create table inbox (
    event_id    uuid primary key,
    received_at timestamptz not null default now()
);
-- Forgetting what is older than any repeat can be: delete from inbox where received_at < …
create index on inbox (received_at);

create table order_log (
    position bigint generated always as identity primary key,
    order_id text not null,
    what     text,  -- none: an event without a type
    body     text
);

-- Where the consumer of Kinesis stands, which keeps no positions itself.
create table shard_position (
    shard    text primary key,
    position text not null  -- a sequence number, or `end`
);
