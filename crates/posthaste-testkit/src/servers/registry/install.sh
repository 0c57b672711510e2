# Sourced by `test`: downloads what has no package.

APICURIO_VERSION=2.6.13.Final

install_apicurio() {
  local work
  if [ -e "$cache/apicurio-$APICURIO_VERSION" ]; then
    echo "Apicurio Registry $APICURIO_VERSION is in the cache"
    return
  fi
  echo "downloading Apicurio Registry $APICURIO_VERSION"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  mkdir "$work/registry"
  mvn -q -B dependency:copy -DoutputDirectory="$work" \
    -Dartifact="io.apicurio:apicurio-registry-app:$APICURIO_VERSION:tar.gz:all" \
    >"$work/log" 2>&1 &&
    tar -xzf "$work"/*.tar.gz -C "$work/registry" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "Maven could not download Apicurio Registry."; }
  chmod -R go+rX "$work/registry"
  mv "$work/registry" "$cache/apicurio-$APICURIO_VERSION"
  rm -rf "$work"
}

install_apicurio
