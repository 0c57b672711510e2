-- $6 what the cluster calls itself.
with {guard}, known as (
    select d.id, d.name, d.cluster
    from guard g
    join posthaste.destinations d on d.id = g.destination_id
    where d.cluster is distinct from $6::text
    for update of d
), stored as (
    update posthaste.destinations d set cluster = $6::text from known k where d.id = k.id
), noted as (
    insert into posthaste.audit (relay, action, destination, detail)
    select $4::uuid, {action:cluster_changed}, k.name, format({detail:cluster_changed}, k.cluster, $6::text)
    from known k
    where k.cluster is not null
)
select exists (select from guard) as guarded, (select k.cluster from known k) as former
