select thread_id, lock_mode, thread_id = connection_id()
from information_schema.metadata_lock_info
where table_schema = database() and table_name = 'posthaste_outbox'
    and (select count(*) from (select 1 from posthaste_outbox limit 1) as canary) >= 0
