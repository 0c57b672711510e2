insert into posthaste_settings (name, value) values (:name, :value)
on conflict (name) do update set value = excluded.value
