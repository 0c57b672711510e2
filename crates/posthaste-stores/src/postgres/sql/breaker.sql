-- The owners' word counts, then that of another member that has tried, then the last one stored.
case
    when exists (
        select from posthaste.members m
        where m.destination_id = d.id and not m.reaches
            and exists (select from posthaste.cursors o where o.destination_id = d.id and o.relay = m.registration))
    then case d.breaker when 'closed' then 'open' else d.breaker end
    when exists (select from posthaste.members m where m.destination_id = d.id and m.reaches) then 'closed'
    else d.breaker
end
