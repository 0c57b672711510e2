"""Consumes events from RabbitMQ: the effect of each happens once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    DATABASE_URL=postgres://app@localhost/app AMQP=amqp://guest:guest@localhost:5672 \
        python consumer_rabbitmq.py orders

The reasons: docs/guides/consumers.md. Whatever goes wrong ends the process; a supervisor starts it again.
"""

import os
import signal
import sys

import pika
import psycopg

EXCHANGE, QUEUE = "events", "warehouse"


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def ours(properties, name):
    """Posthaste's own header. With an event's header of the same name it is a list, ours first."""
    value = properties.headers.get(name)
    return value[0] if isinstance(value, list) else value


def handle(database, properties, body):
    event = properties.message_id
    with database.transaction():
        new = database.execute(
            "insert into inbox (event_id) values (%s) on conflict do nothing", (event,)
        )
        if new.rowcount == 0:
            print("seen before:", event, flush=True)
            return
        order = ours(properties, "key")
        if ours(properties, "tombstone"):
            apply(database, order, "tombstone", None)
        else:
            apply(database, order, properties.type, body.decode())


def declare(channel, topics):
    channel.exchange_declare(EXCHANGE, "topic", durable=True)
    # Of several consumers one gets all messages and the others stand by: that keeps the order.
    channel.queue_declare(QUEUE, durable=True, arguments={"x-single-active-consumer": True})
    for topic in topics:
        channel.queue_bind(QUEUE, EXCHANGE, topic)
    channel.basic_qos(prefetch_count=100)


def main():
    stopping = []
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stopping.append(True))
    with (
        psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as database,
        pika.BlockingConnection(pika.URLParameters(os.environ["AMQP"])) as connection,
    ):
        channel = connection.channel()
        declare(channel, sys.argv[1:])
        print("waiting for events", flush=True)
        for method, properties, body in channel.consume(QUEUE, inactivity_timeout=0.5):
            if stopping:
                break
            if method:
                handle(database, properties, body)
                channel.basic_ack(method.delivery_tag)  # after the effect, never before


main()
