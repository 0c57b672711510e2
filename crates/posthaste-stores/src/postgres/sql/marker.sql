select low, high, seq, floor, floor_min from posthaste.markers where destination_id = $1::bigint and key = $2::text
