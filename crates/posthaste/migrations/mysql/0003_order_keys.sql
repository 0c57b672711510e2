-- A destination may keep the order of a key and a topic: both make the key of what waits for it. A
-- relay that does not know that would pass over what waits there: none starts from now on, and none
-- lives when such a destination is claimed.

alter table posthaste_markers
    modify `key` varbinary(2950) not null;

alter table posthaste_parked
    modify `key` varbinary(2950);

-- The newest migration that a relay was built with. MySQL adds a column once.
set @posthaste_level = (
    select if(count(*) > 0, 'do 0', 'alter table posthaste_relays add column level int unsigned not null default 0')
    from information_schema.columns
    where table_schema = database() and table_name = 'posthaste_relays' and column_name = 'level');
prepare posthaste_level from @posthaste_level;
execute posthaste_level;
deallocate prepare posthaste_level;
