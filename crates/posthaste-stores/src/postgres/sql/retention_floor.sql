(select least(min(c.floor_min), (select min(m.floor_min) from posthaste.markers m)) from posthaste.cursors c)
