"""Consumes events over AMQP 1.0: the effect of each happens once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    DATABASE_URL=postgres://app@localhost/app AMQP=amqp://artemis:artemis@localhost:5672 \
        python consumer_amqp10.py orders

The reasons: docs/guides/consumers.md. Whatever goes wrong ends the process; a supervisor starts it again.
"""

import os
import signal
import sys

import psycopg
from proton import Timeout, symbol
from proton.reactor import ReceiverOption
from proton.utils import BlockingConnection


class Queue(ReceiverOption):
    """Asks for a queue, which a broker that makes addresses then makes."""

    def apply(self, receiver):
        receiver.source.capabilities.put_object(symbol("queue"))


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def handle(database, message):
    with database.transaction():
        new = database.execute(
            "insert into inbox (event_id) values (%s) on conflict do nothing", (message.id,)
        )
        if new.rowcount == 0:
            print("seen before:", message.id, flush=True)
            return
        order = message.properties.get("key")
        if message.properties.get("tombstone"):
            apply(database, order, "tombstone", None)
        else:
            apply(database, order, message.subject, bytes(message.body).decode())


def main():
    stopping = []
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stopping.append(True))
    # A password without TLS: for a broker on this machine.
    amqp = BlockingConnection(os.environ["AMQP"], allow_insecure_mechs=True)
    receiver = amqp.create_receiver(sys.argv[1], credit=100, options=Queue())
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as database:
        print("waiting for events", flush=True)
        while not stopping:
            try:
                message = receiver.receive(timeout=0.5)
            except Timeout:
                continue
            handle(database, message)
            receiver.accept()  # after the effect, never before
    amqp.close()


main()
