# Sourced by `test`: downloads what has no package.

ARTEMIS_VERSION=2.40.0

install_artemis() {
  local work
  if [ -e "$cache/artemis-$ARTEMIS_VERSION" ]; then
    echo "ActiveMQ Artemis $ARTEMIS_VERSION is in the cache"
    return
  fi
  echo "downloading ActiveMQ Artemis $ARTEMIS_VERSION"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  # It leaves a folder of marks where it runs.
  (cd "$work" && mvn -q -B dependency:unpack \
    -Dartifact="org.apache.activemq:apache-artemis:$ARTEMIS_VERSION:tar.gz:bin" \
    -DoutputDirectory="$work") >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "Maven could not download ActiveMQ Artemis."; }
  chmod -R go+rX "$work"
  mv "$work/apache-artemis-$ARTEMIS_VERSION/lib" "$cache/artemis-$ARTEMIS_VERSION"
  rm -rf "$work"
}

install_artemis
