"""Consumes events from a Redis stream: the effect of each happens once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    DATABASE_URL=postgres://app@localhost/app REDIS=redis://localhost:6379 \
        python consumer_redis.py orders

The reasons: docs/guides/consumers.md. Whatever goes wrong ends the process; a supervisor starts it again.
"""

import os
import signal
import sys

import psycopg
import redis

# One consumer of the group reads, which keeps the order. It has the same name in its next life.
GROUP, CONSUMER = "warehouse", "one"


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def handle(database, fields):
    event = fields[b"id"].decode()
    with database.transaction():
        new = database.execute(
            "insert into inbox (event_id) values (%s) on conflict do nothing", (event,)
        )
        if new.rowcount == 0:
            print("seen before:", event, flush=True)
            return
        order, what, body = (
            value and value.decode() for value in map(fields.get, (b"key", b"type", b"payload"))
        )
        apply(database, order, "tombstone" if body is None else what, body)


def read(streams, stream, position):
    """Entries with their fields. An entry that was trimmed unread has none."""
    answer = streams.xreadgroup(GROUP, CONSUMER, {stream: position}, count=100, block=500)
    for entry, fields in answer[0][1] if answer else []:
        if not fields:
            raise RuntimeError(f"{stream}: {entry.decode()} was trimmed before it was handled")
        yield entry, fields


def join(streams, stream):
    try:
        streams.xgroup_create(stream, GROUP, id="0", mkstream=True)
    except redis.ResponseError as error:
        if not str(error).startswith("BUSYGROUP"):
            raise


def main():
    stopping = []
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stopping.append(True))
    (stream,) = sys.argv[1:]
    with (
        psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as database,
        redis.Redis.from_url(os.environ["REDIS"], protocol=2, socket_timeout=None) as streams,
    ):
        join(streams, stream)
        print("waiting for events", flush=True)
        # First what this consumer had got and not acknowledged, then new entries.
        position = "0"
        while not stopping:
            entries = list(read(streams, stream, position))
            if not entries:
                position = ">"
            for entry, fields in entries:
                handle(database, fields)
                streams.xack(stream, GROUP, entry)  # after the effect, never before


main()
