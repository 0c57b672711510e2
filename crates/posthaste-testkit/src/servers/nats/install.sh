# Sourced by `test`: installs the distribution's own server.

install_service NATS nats-server /usr/sbin/nats-server
