select d.id, d.name, d.state, d.breaker, d.last_error, c.seq, d.url,
       (select r.name from posthaste_relays as r
        where r.registration = o.registration and {live}),
       (select count(*) from posthaste_parked as p where p.destination_id = d.id and p.state = 'parked'),
       (select count(*) from posthaste_parked as p where p.destination_id = d.id and p.state = 'dead'),
       (select count(*) from posthaste_markers as m where m.destination_id = d.id),
       (select sum(e.value) from posthaste_relays as r, json_each(iif(json_valid(r.rates), r.rates, '{}')) as e
        where e.key = d.name and {live}),
       (select json_group_array(r.places) from posthaste_relays as r
        where r.places <> '' and {live}),
       d.paused_places
from posthaste_destinations as d
join posthaste_ownership as o on o.destination_id = d.id and o.partition_from = 0
join posthaste_cursors as c on c.id = o.cursor_id
where d.state <> 'removed'
order by d.name
