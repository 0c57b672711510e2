-- The rights that the relay's role lacks; none: it has all of them.
with tables (name, rights) as (
    values
        ('outbox', array['select']),
        ('migrations', array['select']),
        ('settings', array['select']),
        ('identity', array['select']),
        ('incarnation', array['select', 'insert', 'update']),
        ('destinations', array['select', 'insert', 'update']),
        ('relays', array['select', 'insert', 'update', 'delete']),
        ('cursors', array['select', 'insert', 'update', 'delete']),
        ('partitions', array['select', 'insert', 'update', 'delete']),
        ('members', array['select', 'insert', 'update', 'delete']),
        ('markers', array['select', 'insert', 'update', 'delete']),
        ('parked', array['select', 'insert', 'update', 'delete']),
        ('attempts', array['select', 'insert', 'delete']),
        ('audit', array['select', 'insert', 'delete']),
        ('destination_locks', array['select', 'insert', 'update']),
        ('retention_lock', array['select', 'update'])
    union all
    select 'outbox_' || lpad(leaf::text, 2, '0'), array['select', 'delete', 'truncate']
    from generate_series(0, 15) leaf
), missing as (
    select upper(r.right_) || ' on posthaste.' || t.name as text
    from tables t cross join unnest(t.rights) r (right_)
    where not pg_catalog.has_table_privilege('posthaste.' || t.name, r.right_)
    union all
    -- Without it PostgreSQL 18 answers NULL for the sequence's value, which would read as zero.
    select 'SELECT on sequence posthaste.outbox_seq_seq'
    where not pg_catalog.has_sequence_privilege('posthaste.outbox_seq_seq', 'select, usage')
)
select string_agg(text, ', ') from missing
