delete a from posthaste_audit as a
join (select id from posthaste_audit order by id limit :rows) as oldest on oldest.id = a.id
where a.at <= :before
