-- Whether standbys with hot_standby_feedback stream from here: their oldest snapshot is the
-- connection's or, with a slot, the slot's, which any role may see.
select
    exists (select from posthaste.settings s where s.name = 'retention_mode' and s.value = 'truncate') as truncates,
    exists (select from pg_catalog.pg_stat_replication r where r.backend_xmin is not null)
        or exists (
            select from pg_catalog.pg_replication_slots s
            where s.slot_type = 'physical' and s.active and s.xmin is not null) as feedback
