update posthaste_destinations set paused_places = :places where id = :id
