select ml.owner_thread_id, ml.owner_event_id, ml.object_instance_begin, ml.lock_type,
    ml.owner_thread_id = me.thread_id
from performance_schema.metadata_locks as ml
join performance_schema.threads as me on me.processlist_id = connection_id()
where ml.object_type = 'TABLE' and ml.object_schema = database()
    and ml.object_name = 'posthaste_outbox'
    and (select count(*) from (select 1 from posthaste_outbox limit 1) as canary) >= 0
