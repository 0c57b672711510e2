-- Without any cursor there is none.
select case when (select count(*) from posthaste_cursors) > 0 then least(
    (select min(floor) from posthaste_cursors),
    coalesce((select min(floor) from posthaste_markers), 18446744073709551615)) end
