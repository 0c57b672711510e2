# Sourced by `test`: builds the server of Pub/Sub, around the one of Google's client library for Go.

build_go_server "Pub/Sub" pubsub
