"""Consumes events from Kafka: the effect of each happens once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    DATABASE_URL=postgres://app@localhost/app KAFKA=localhost:9092 python consumer_kafka.py orders

The reasons: docs/guides/consumers.md. What the client cannot mend ends the process; a supervisor starts it again.
"""

import os
import signal
import sys

import psycopg
from confluent_kafka import Consumer, KafkaException


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def handle(database, message):
    # Posthaste's own headers come first; an event may have headers of the same names behind them.
    headers = dict(reversed(message.headers()))
    event = headers["id"].decode()
    with database.transaction():
        new = database.execute(
            "insert into inbox (event_id) values (%s) on conflict do nothing", (event,)
        )
        if new.rowcount == 0:
            print("seen before:", event, flush=True)
            return
        order = message.key().decode()
        if message.value() is None:
            apply(database, order, "tombstone", None)
        else:
            what = headers.get("type")  # an event may have no type
            apply(database, order, what and what.decode(), message.value().decode())


def consume(database, consumer, stopping):
    print("waiting for events", flush=True)
    while not stopping:
        messages = consumer.consume(num_messages=100, timeout=0.5)
        for message in messages:
            if error := message.error():
                if error.fatal():
                    raise KafkaException(error)
                print("Kafka:", error, file=sys.stderr, flush=True)  # the client goes on by itself
                continue
            handle(database, message)
        if messages:
            try:
                consumer.commit(asynchronous=False)  # after the effects, never before
            except KafkaException as error:
                # The broker is away, or the partition has moved: these will be seen again.
                print("offsets not committed:", error, file=sys.stderr, flush=True)


def main():
    stopping = []
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stopping.append(True))
    consumer = Consumer(
        {
            "bootstrap.servers": os.environ["KAFKA"],
            "group.id": "warehouse",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            # So long nobody else gets the partitions of a consumer that died. Shorter, and a short
            # outage of the broker takes them from one that is well.
            "session.timeout.ms": 15000,
        }
    )
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as database:
        consumer.subscribe(sys.argv[1:])
        try:
            consume(database, consumer, stopping)
        finally:
            consumer.close()


main()
