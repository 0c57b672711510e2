    begin
        lock table posthaste.retention_lock in share row exclusive mode nowait;
    exception when lock_not_available then
        return;
    end;
