-- $6 copy, $7 new state, $8 kind, $9 reason, $10 microseconds until it is due, $11 whether it was an
-- attempt. A copy that an operator has settled meanwhile stays as it is, unless it was delivered all the same: that is what
-- happened.
with {guard}, settled as (
    update posthaste.parked p
    set state = $7::text, attempts = p.attempts + $11::boolean::integer,
        kind = case when $7::text = 'delivered' then p.kind else $8::text end,
        reason = case when $7::text = 'delivered' then p.reason else $9::text end,
        due_at = clock_timestamp() + $10::bigint * interval '1 microsecond',
        settled_at = case when $7::text in ('delivered', 'skipped') then clock_timestamp() else p.settled_at end
    from guard g
    where p.id = $6::bigint and p.destination_id = g.destination_id
        and (p.state in ('parked', 'dead') or $7::text = 'delivered')
    returning p.id, p.attempts, p.event_id, p.seq, p.destination_id
), tried as (
    insert into posthaste.attempts (parked_id, attempt, kind, reason)
    select id, attempts, $8::text, $9::text from settled where $11::boolean
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $4::uuid,
        case $7::text when 'skipped' then {action:skip_again} when 'dead' then {action:dead_again} else {action:delivered} end,
        d.name,
        format({detail:delivered}, coalesce(s.event_id::text, {without_id}), s.seq, s.attempts, $8::text)
    from settled s join posthaste.destinations d on d.id = s.destination_id
    where $7::text <> 'parked'
)
select exists (select from guard) as guarded
