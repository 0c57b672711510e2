# Sourced by `test`: brings Azurite, Microsoft's server of Azure Blob Storage.

AZURITE_VERSION=3.35.0

install_azurite() {
  local work
  if [ -e "$cache/azurite-$AZURITE_VERSION" ]; then
    echo "Azurite $AZURITE_VERSION is in the cache"
    return
  fi
  echo "downloading Azurite $AZURITE_VERSION"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  npm install --prefix "$work/azurite" --no-audit --no-fund --silent \
    "azurite@$AZURITE_VERSION" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "npm could not download Azurite."; }
  mv "$work/azurite" "$cache/azurite-$AZURITE_VERSION"
  rm -rf "$work"
}

install_azurite
