-- $1 lines looked at: the oldest, so that no index by time is needed.
delete from posthaste.audit a
where a.id = any(array(select o.id from posthaste.audit o order by o.id limit $1::bigint))
    and a.at <= clock_timestamp() - interval '30 days'
