show global variables where variable_name in
    ('read_only', 'super_read_only', 'wsrep_on', 'group_replication_group_name',
     'group_replication_single_primary_mode', 'binlog_format')
