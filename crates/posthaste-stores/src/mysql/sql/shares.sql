-- How destinations are shared out, as one moment has it: one of them, or all that a relay serves. A
-- row for each row of cursors, and one for each relay that serves the destination and is not dead.
select d.id, d.name, d.state, d.paused_places, d.shares_version, d.partitions,
    (select s.value from posthaste_settings as s where s.name = 'partitions') as wanted,
    timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) as now,
    p.cursor_id, p.registration, p.until, p.live, p.owned, p.relay, p.boot_id, p.pid_namespace,
    p.pid, p.process_started, p.leaving, p.partitions_max, p.reaches
from posthaste_destinations as d
left join (
    select m.destination_id, null as cursor_id, r.registration, r.lease_expires_at as until,
        1 as live, null as owned, r.name as relay, r.boot_id, r.pid_namespace, r.pid,
        r.process_started, r.leaving, m.partitions_max, m.reaches
    from posthaste_members as m join posthaste_relays as r on r.registration = m.registration
    where r.fenced_at is null
        and r.lease_expires_at > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))
    union all
    select c.destination_id, c.id, c.relay, c.not_before,
        coalesce(r.fenced_at is null
            and r.lease_expires_at > timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)), 0),
        c.partitions, null, null, null, null, null, null, null, null
    from posthaste_cursors as c left join posthaste_relays as r on r.registration = c.relay
) as p on p.destination_id = d.id
where d.state <> 'removed' and (d.id = :destination_id or d.id in (
    select s.destination_id from posthaste_members as s where s.registration = :registration))
order by d.name, p.cursor_id, p.registration
