-- A row without a time (its checks were bypassed) counts as the oldest.
select seq from posthaste_outbox
where seq > :start and seq <= :stop and typeof(inserted_at) = 'integer' and inserted_at > :before
order by seq limit 1
