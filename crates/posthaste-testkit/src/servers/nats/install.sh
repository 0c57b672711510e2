# Sourced by `test`: installs the distribution's own server.

install_nats() {
  if [ -x /usr/sbin/nats-server ] || command -v nats-server >/dev/null; then
    echo "NATS is there"
    return
  fi
  command -v apt-get >/dev/null ||
    fail "Not a Debian system: install nats-server by its own means, then run ./test again."
  echo "installing nats-server"
  as_root apt-get update -qq
  without_services apt_install nats-server
  # What a running systemd was told to start at the next boot.
  [ ! -d /run/systemd/system ] || as_root systemctl disable --quiet nats-server.service
}

install_nats
