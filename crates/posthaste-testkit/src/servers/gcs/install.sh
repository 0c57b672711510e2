# Sourced by `test`: builds the server of Google Cloud Storage, around fake-gcs-server.

build_go_server "Google Cloud Storage" gcs
