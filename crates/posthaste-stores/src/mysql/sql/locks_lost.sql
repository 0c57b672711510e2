show global status where variable_name in
    ('Performance_schema_metadata_lock_lost', 'Performance_schema_thread_instances_lost')
