select r.name from posthaste_relays as r where r.level < :level and {live} order by r.name limit 1
