"""Prints the payloads of a file that a relay has written, each as its writer had it.

    python payloads.py events.jsonl

A consumer of a broker does the same with a record's headers and value.
"""

import base64
import gzip
import hashlib
import json
import sys
from urllib.request import urlopen


def fetch(address: str) -> bytes:
    """The object at an address. Of a bucket, ask its own client."""
    if not address.startswith("file:///"):
        raise ValueError("this consumer reads folders alone")
    with urlopen(address) as file:
        return file.read()


def unpack(headers: dict[str, str | None], payload: bytes) -> bytes:
    """The payload as it was written."""
    if address := headers.get("claim-check"):
        payload = fetch(address)
        if hashlib.sha256(payload).hexdigest() != headers["claim-check-sha256"]:
            raise ValueError(f"{address} is not what was sent")
    match headers.get("content-encoding"):
        case None:
            return payload
        case "gzip":
            return gzip.decompress(payload)
        case "zstd":
            # From Python 3.14 on, or of the package `zstandard`.
            from compression import zstd

            return zstd.decompress(payload)
        case other:
            raise ValueError(f"no such content-encoding: {other}")


def read(line: str) -> bytes | None:
    """The payload of a line; none for a tombstone."""
    event = json.loads(line)
    headers: dict[str, str | None] = {}
    for name, value in event["headers"]:
        # The first of a name is the relay's.
        headers.setdefault(name, value)
    if "payload_base64" in event:
        return unpack(headers, base64.b64decode(event["payload_base64"]))
    if event["payload"] is None:
        return None
    return unpack(headers, event["payload"].encode())


if __name__ == "__main__":
    for line in open(sys.argv[1], encoding="utf-8"):
        payload = read(line)
        print("" if payload is None else payload.decode())
