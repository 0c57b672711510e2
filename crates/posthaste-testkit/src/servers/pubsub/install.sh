# Sourced by `test`: builds the server of Pub/Sub, around the one of Google's client library for Go.

install_pubsub() {
  local source work
  source=crates/posthaste-testkit/src/servers/pubsub/server
  # The sources that it was built of; another line builds it anew.
  if cat "$source"/* | cmp -s - "$cache/pubsub-server/contents"; then
    echo "the server of Pub/Sub is in the cache"
    return
  fi
  command -v go >/dev/null ||
    fail "Go is missing, which builds a server of Pub/Sub: install Go 1.26 or later from" \
      "https://go.dev/dl, then run ./test again."
  echo "building the server of Pub/Sub"
  mkdir -p "$cache"
  work=$(mktemp -d "$cache/download.XXXXXX")
  (cd "$source" && GOFLAGS='' CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags='-s -w' \
    -o "$work/server" .) >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; rm -rf "$work"; fail "Go could not build the server of Pub/Sub."; }
  cat "$source"/* >"$work/contents"
  rm -rf "$work/log" "$cache/pubsub-server"
  mv "$work" "$cache/pubsub-server"
}

install_pubsub
