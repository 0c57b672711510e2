-- $1 floor, $2 window in microseconds, $3 rows counted at the most.
select count(*) as counted,
    count(*) filter (where o.inserted_at <= clock_timestamp() - $2::bigint * interval '1 microsecond') as debt
from (
    select inserted_at from posthaste.outbox where seq > $1::bigint order by seq limit $3::bigint
) o
