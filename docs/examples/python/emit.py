"""Writes events from Python (psycopg 3), in the transactions of its own business rows.

    pip install -r requirements.txt
    DATABASE_URL=postgres://app@localhost/shop python emit.py
"""

import os

import psycopg
from psycopg.types.json import Json, Jsonb

HEADERS = ["source", "shop", "source", "again", "no-value", None]


def emit(connection, sql, parameters):
    """Runs one emit and prints the id that it answers."""
    print(connection.execute(sql, parameters).fetchone()[0])


with psycopg.connect(os.environ["DATABASE_URL"]) as connection:
    # A business row and its event: both, or neither.
    with connection.transaction():
        connection.execute("insert into orders (id, state) values ('order-1', 'placed')")
        emit(
            connection,
            "select posthaste.emit('orders', %s, key => %s, type => 'order.placed', headers => %s)",
            ("text: Größe", "order-1", HEADERS),
        )

    # JSON, with the type that psycopg gives it.
    with connection.transaction():
        emit(connection, "select posthaste.emit('orders', %s, key => 'order-1')", (Json({"b": 1, "a": 2}),))
        emit(connection, "select posthaste.emit('orders', %s, key => 'order-1')", (Jsonb({"b": 1, "a": 2}),))

    # Bytes, and no payload at all: a tombstone.
    with connection.transaction():
        emit(connection, "select posthaste.emit_bytes('orders', %s, key => 'order-1')", (b"\x00\xff\xfe",))
        emit(connection, "select posthaste.emit('orders', key => %s)", ("order-1",))

    # No business row to lock first: the event's key is locked until the commit.
    with connection.transaction():
        emit(connection, "select posthaste.emit('orders', %s, key => %s, lock_key => true)", ("locked", "order-1"))

    # Rolled back: neither the row nor the event exists.
    with connection.transaction(force_rollback=True):
        connection.execute("insert into orders (id, state) values ('order-2', 'placed')")
        connection.execute("select posthaste.emit('orders', 'never', key => 'order-2')")

    # A savepoint that is rolled back takes its event with it; the transaction goes on.
    with connection.transaction():
        with connection.transaction(force_rollback=True):
            connection.execute("select posthaste.emit('orders', 'never', key => 'order-1')")
        emit(connection, "select posthaste.emit('orders', %s, key => 'order-1')", ("after the savepoint",))

    # A plain INSERT; the payload is bytes, the other columns have defaults.
    with connection.transaction():
        connection.execute(
            "insert into posthaste.outbox (topic, key, payload, headers) values (%s, %s, %s, %s)",
            ("orders", "order-1", b"inserted", HEADERS),
        )
