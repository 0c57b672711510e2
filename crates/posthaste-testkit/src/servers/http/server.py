"""An endpoint of webhooks for tests: keeps what it accepts, and fails as it is told.

    python3 server.py FOLDER PORT [CERTIFICATE KEY [AUTHORITY_OF_CLIENTS]]

The first part of a request's path is its place. What a place accepts is a line of JSON in
FOLDER/PLACE.jsonl, written before the answer. FOLDER/PLACE.fault says in JSON what goes wrong:

    status, headers, body   the answer instead of 200
    store                   whether to keep the request nevertheless
    act                     reset, cut, silent, endless, drip, garbage: instead of a whole answer
    only                    text in the request's target or body; others are not concerned
    times                   for so many requests
"""

import asyncio
import base64
import json
import os
import socket
import ssl
import struct
import sys

FOLDER, PORT = sys.argv[1], int(sys.argv[2])
HEAD_BYTES_MAX = 4 << 20
# Open files of places, and how often each fault was met.
FILES, MET = {}, {}


class NotHttp(Exception):
    """A greeting in TLS."""


def fault_of(place, target, body):
    path = f"{FOLDER}/{place}.fault"
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        return {}
    fault = json.loads(text)
    only = fault.get("only")
    if only is not None and only not in target and only.encode() not in body:
        return {}
    met = MET.get((place, text), 0)
    if "times" in fault and met >= fault["times"]:
        return {}
    MET[place, text] = met + 1
    return fault


def opened(path):
    """The file of a place, without a line that a killed server began: it gave no answer."""
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    with open(path, "rb") as kept:
        os.truncate(file, kept.read().rfind(b"\n") + 1)
    return file


def keep(place, request):
    if place not in FILES:
        FILES[place] = opened(f"{FOLDER}/{place}.jsonl")
    line = json.dumps(request).encode() + b"\n"
    while line:
        line = line[os.write(FILES[place], line) :]


async def read(reader):
    """Method, target, headers in their order, and body of a request; None at the end."""
    try:
        head = await reader.readexactly(1)
        if head == b"\x16":
            raise NotHttp
        head += await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head[:-4].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [tuple(part.strip() for part in line.split(":", 1)) for line in lines]
    length = [int(value) for name, value in headers if name.lower() == "content-length"]
    body = await reader.readexactly(length[0]) if length else b""
    return method, target, headers, body


def answer(status, headers, body):
    lines = [f"HTTP/1.1 {status} {'OK' if status == 200 else 'So it is'}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join(lines + [f"Content-Length: {len(body)}", "", body]).encode()


async def act(name, writer):
    """Gives no whole answer. The connection is of no use afterwards."""
    if name == "silent":
        await asyncio.sleep(3600)
    elif name == "garbage":
        writer.write(b"220 mail.example ESMTP\r\n")
        await writer.drain()
    elif name == "endless":
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"1000\r\n" + b"x" * 0x1000 + b"\r\n")
            await writer.drain()
    elif name == "drip":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)
    elif name == "cut":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf of it")
        await writer.drain()
        # So that the half of it arrives in front of the reset.
        await asyncio.sleep(0.05)


async def serve_one(reader, writer):
    """Whether the connection goes on."""
    request = await read(reader)
    if request is None:
        return False
    method, target, headers, body = request
    if method == "OPTIONS":
        writer.write(answer(405, {}, ""))
        await writer.drain()
        return True
    place = target.split("?")[0].split("/")[1]
    fault = fault_of(place, target, body)
    status = fault.get("status", 200)
    if fault.get("store", status < 300 and "act" not in fault):
        text = base64.b64encode(body).decode()
        keep(place, {"method": method, "target": target, "headers": headers, "body": text})
    if "act" in fault:
        await act(fault["act"], writer)
        return False
    writer.write(answer(status, fault.get("headers", {}), fault.get("body", "")))
    await writer.drain()
    return True


async def serve(reader, writer):
    try:
        while await serve_one(reader, writer):
            pass
    except NotHttp:
        # As nginx does.
        writer.write(answer(400, {"Connection": "close"}, "this is HTTP"))
        await writer.drain()
        await asyncio.sleep(0.05)
    except ConnectionError:
        pass
    finally:
        if plain := writer.get_extra_info("socket"):
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()


def tls():
    if len(sys.argv) < 5:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(sys.argv[3], sys.argv[4])
    if len(sys.argv) > 5:
        context.load_verify_locations(sys.argv[5])
        context.verify_mode = ssl.CERT_REQUIRED
    return context


async def main():
    server = await asyncio.start_server(
        serve, "127.0.0.1", PORT, limit=HEAD_BYTES_MAX, ssl=tls(), backlog=1024
    )
    print("listening", flush=True)
    await server.serve_forever()


try:
    asyncio.run(main())
except KeyboardInterrupt:
    pass
