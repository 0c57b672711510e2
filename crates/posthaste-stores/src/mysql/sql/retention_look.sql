-- All that tells whether there is something to do. A row without a time counts as the oldest.
select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)),
    (select s.value from posthaste_settings as s where s.name = 'retention_seconds'),
    ({floor}),
    (select min(c.floor) from posthaste_cursors as c),
    (select min(o.seq) from posthaste_outbox as o),
    (select coalesce(timestampdiff(microsecond, '1970-01-01', o.inserted_at), 0)
        from posthaste_outbox as o order by o.seq limit 1),
    (select a.at from posthaste_audit as a order by a.id limit 1),
    (select count(*) from (
{parked_due}) as due)
