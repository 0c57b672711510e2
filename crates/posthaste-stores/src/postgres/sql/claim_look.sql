-- $1 destination. One row a cursor group, free ones and others'.
select c.id, c.relay, c.former, c.left_by, c.left_name, c.left_dead,
    (extract(epoch from least(greatest(c.not_before - clock_timestamp(), interval '0'), interval '1 day'))
        * 1000000)::bigint as settling,
    array(select p.partition from posthaste.partitions p where p.cursor_id = c.id order by p.partition) as partitions,
    d.state, d.paused_places, d.address, d.partitions as count, d.epoch,
    {breaker} = 'open' as breaker_open,
    (select s.value::integer from posthaste.settings s where s.name = 'partitions') as wanted_count,
    (select i.store_id from posthaste.identity i where i.one) as store_id
from posthaste.destinations d
join posthaste.cursors c on c.destination_id = d.id
where d.id = $1::bigint and d.state <> 'removed'
order by c.id
