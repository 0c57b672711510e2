"""Writes events from Python (PyMySQL), in the transactions of its own business rows.

    pip install -r requirements.txt
    DATABASE_HOST=localhost DATABASE_PORT=3306 DATABASE_USER=app DATABASE_NAME=shop python emit.py
"""

import json
import os

import pymysql

EMIT = """insert into posthaste_outbox (topic, `key`, `type`, content_type, payload, headers)
          values ('orders', %s, %s, %s, %s, %s)"""
LOCK = """select slot from posthaste_key_locks
          where slot = conv(left(sha2(%s, 256), 4), 16, 10) & 16383 for update"""
HEADERS = json.dumps(["source", "shop", "source", "again", "no-value", None])

connection = pymysql.connect(  # not in autocommit: each commit ends a transaction
    host=os.environ["DATABASE_HOST"],
    port=int(os.environ["DATABASE_PORT"]),
    user=os.environ["DATABASE_USER"],
    password=os.environ.get("DATABASE_PASSWORD", ""),
    database=os.environ["DATABASE_NAME"],
    charset="utf8mb4",
)
with connection, connection.cursor() as cursor:
    # A business row and its event: both, or neither.
    cursor.execute("insert into orders (id, state) values ('order-1', 'placed')")
    cursor.execute(EMIT, ("order-1", "order.placed", None, "text: Größe", HEADERS))
    connection.commit()

    # JSON, bytes, and no payload at all: a tombstone.
    cursor.execute(EMIT, ("order-1", None, "application/json", json.dumps({"a": 1}), "[]"))
    cursor.execute(EMIT, ("order-1", None, None, b"\x00\xff\xfe", "[]"))
    cursor.execute(EMIT, ("order-1", None, None, None, "[]"))
    connection.commit()

    # No business row to lock first: the slot of the event's key is locked until the commit.
    cursor.execute(LOCK, ("order-1",))
    cursor.execute(EMIT, ("order-1", None, None, "locked", "[]"))
    connection.commit()

    # Rolled back: neither the row nor the event exists.
    cursor.execute("insert into orders (id, state) values ('order-2', 'placed')")
    cursor.execute(EMIT, ("order-2", None, None, "never", "[]"))
    connection.rollback()

    # A savepoint that is rolled back takes its event with it; the transaction goes on.
    cursor.execute("savepoint attempt")
    cursor.execute(EMIT, ("order-1", None, None, "never", "[]"))
    cursor.execute("rollback to savepoint attempt")
    cursor.execute(EMIT, ("order-1", None, None, "after the savepoint", "[]"))
    connection.commit()
