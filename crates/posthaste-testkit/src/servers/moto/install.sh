# Sourced by `test`: brings moto, with the packages that its server needs.

MOTO_VERSION=5.2.5

install_moto() {
  local work
  if [ -e "$cache/moto-$MOTO_VERSION" ]; then
    echo "moto $MOTO_VERSION is in the cache"
    return
  fi
  echo "downloading moto $MOTO_VERSION"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  { python3 -m venv "$work/moto" &&
    "$work/moto/bin/python" -m pip install --quiet "moto==$MOTO_VERSION" flask flask-cors
  } >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "pip could not download moto."; }
  mv "$work/moto" "$cache/moto-$MOTO_VERSION"
  rm -rf "$work"
}

install_moto
