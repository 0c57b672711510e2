-- Which event a cursor has passed, so that a number that another event has drawn again is noticed.

alter table posthaste_cursors
    -- The number where it stood, ...
    add column passed_seq integer;

alter table posthaste_cursors
    -- ... and the id of the event there; both none where there was no row.
    add column passed_id text;

update posthaste_cursors
set (passed_seq, passed_id) = (
    select o.seq, o.id from posthaste_outbox as o where o.seq = posthaste_cursors.seq);
