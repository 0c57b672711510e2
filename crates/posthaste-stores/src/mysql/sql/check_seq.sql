select c.data_type = 'bigint' and c.column_type like '%unsigned%'
    and c.extra like '%auto_increment%'
    and (
        select count(*) = 1 and sum(k.column_name = 'seq') = 1
        from information_schema.key_column_usage as k
        where k.table_schema = database() and k.table_name = 'posthaste_outbox'
            and k.constraint_name = 'PRIMARY')
from information_schema.columns as c
where c.table_schema = database() and c.table_name = 'posthaste_outbox' and c.column_name = 'seq'
