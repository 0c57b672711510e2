insert into posthaste_relays (registration, name, version, boot_id, pid_namespace, pid, process_started,
                              registered_at, lease_expires_at, lease, level)
values (:registration, :name, :version, :boot_id, :pid_namespace, :pid, :process_started, :now, :lease_expires_at, :lease,
        :level)
