select element.value from posthaste_outbox as o, json_each(o.headers) as element where o.seq = ? order by element.key
