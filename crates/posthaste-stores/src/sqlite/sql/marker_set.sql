insert into posthaste_markers (destination_id, key, seq, since) values (:destination_id, :key, :seq, :now)
on conflict (destination_id, key) do update set seq = max(seq, excluded.seq)
