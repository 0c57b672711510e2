# Sourced by `test`: installs the distribution's own server.

install_service Redis redis-server /usr/bin/redis-server
