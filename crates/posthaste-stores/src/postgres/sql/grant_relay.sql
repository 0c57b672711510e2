grant usage on schema posthaste to {role};
grant select on posthaste.outbox, posthaste.migrations, posthaste.settings, posthaste.identity to {role};
grant select on sequence posthaste.outbox_seq_seq to {role};
grant select, insert, update, delete on
    posthaste.incarnation, posthaste.destinations, posthaste.relays, posthaste.cursors, posthaste.partitions,
    posthaste.members, posthaste.markers, posthaste.parked, posthaste.attempts, posthaste.audit
    to {role};
grant select, insert, update on posthaste.destination_locks to {role};
grant select, update on posthaste.retention_lock to {role};
grant select, delete, truncate on {leaves} to {role};
