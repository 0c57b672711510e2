-- In the place of a number that was drawn it answers a hash of what the shares are, but for what
-- time alone changes: lease ends, which every renewal moves.
update posthaste_relays
set lease_expires_at = timestampdiff(microsecond, '1970-01-01', utc_timestamp(6)) + :lease,
    rates = :rates, places = :places, leaving = leaving + 0 * last_insert_id((
        select 1 + coalesce(bit_xor(cast(conv(left(sha2(json_array(
            s.id, hex(s.name), s.state, s.paused_places, s.shares_version, s.partitions, s.wanted,
            s.cursor_id, s.registration, s.live, hex(s.owned), s.leaving, s.partitions_max,
            s.reaches, if(s.cursor_id is null, null, s.until)
        ), 256), 15), 16, 10) as unsigned)), 0)
        from ({shares}) as s))
where registration = :registration and fenced_at is null
