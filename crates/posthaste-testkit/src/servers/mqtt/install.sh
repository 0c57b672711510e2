# Sourced by `test`: installs the distribution's own broker.

install_service MQTT mosquitto /usr/sbin/mosquitto
