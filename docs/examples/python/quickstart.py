"""Writes a business row and its event, from Python with psycopg 3."""

import os
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

order, lines = uuid4(), [{"item": "book", "count": 2}]
with psycopg.connect(os.environ["DATABASE_URL"]) as connection:  # commits, or rolls back
    connection.execute("insert into orders (id, state) values (%s, 'placed')", (order,))
    connection.execute(
        "select posthaste.emit('orders', %s, key => %s, type => 'order.placed', headers => %s)",
        (Jsonb(lines), order, ["source", "shop"]),
    )
