-- $1 the number that three quarters of the ring reach back to: how old is the first row behind it, in
-- microseconds.
select (extract(epoch from clock_timestamp() - least(
        greatest(o.inserted_at, timestamptz 'epoch'), clock_timestamp())) * 1000000)::bigint as age
from posthaste.outbox o
where o.seq > $1::bigint
order by o.seq
limit 1
