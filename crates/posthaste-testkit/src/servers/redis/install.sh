# Sourced by `test`: installs the distribution's own server.

install_redis() {
  if [ -x /usr/bin/redis-server ] || command -v redis-server >/dev/null; then
    echo "Redis is there"
    return
  fi
  command -v apt-get >/dev/null ||
    fail "Not a Debian system: install redis-server by its own means, then run ./test again."
  echo "installing redis-server"
  as_root apt-get update -qq
  without_services apt_install redis-server
  # What a running systemd was told to start at the next boot.
  [ ! -d /run/systemd/system ] || as_root systemctl disable --quiet redis-server.service
}

install_redis
