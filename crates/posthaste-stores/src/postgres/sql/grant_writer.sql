grant usage on schema posthaste to {role};
grant insert ({columns}) on posthaste.outbox to {role};
grant execute on all functions in schema posthaste to {role};
