"""Consumes events from a subscription of Pub/Sub: the effect of each once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    GOOGLE_CLOUD_PROJECT=shop DATABASE_URL=postgres://app@localhost/app \\
        python consumer_pubsub.py orders

The reasons: docs/guides/consumers.md. Any fault ends the process; a supervisor starts it again.
"""

import os
import signal
import sys

import psycopg
from google.api_core.exceptions import DeadlineExceeded
from google.cloud.pubsub_v1 import SubscriberClient

# A call that finds nothing ends after it.
SECONDS_TO_WAIT = 5


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def handle(database, message):
    event = message.attributes
    body = None if "tombstone" in event else message.data.decode()
    with database.transaction():
        new = database.execute(
            "insert into inbox (event_id) values (%s) on conflict do nothing", (event["id"],)
        )
        if new.rowcount == 0:
            print("seen before:", event["id"], flush=True)
            return
        apply(
            database, event.get("key"), "tombstone" if body is None else event.get("type"), body
        )


def main():
    stopping = []
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stopping.append(True))
    (name,) = sys.argv[1:]
    database = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    with database, SubscriberClient() as subscriber:
        subscription = subscriber.subscription_path(os.environ["GOOGLE_CLOUD_PROJECT"], name)
        print("waiting for events", flush=True)
        while not stopping:
            try:
                answer = subscriber.pull(
                    subscription=subscription, max_messages=10, timeout=SECONDS_TO_WAIT, retry=None
                )
            except DeadlineExceeded:
                continue
            # In their order. One that fails ends the process, so that none overtakes it.
            for received in answer.received_messages:
                handle(database, received.message)
                # After the effect, never before.
                subscriber.acknowledge(subscription=subscription, ack_ids=[received.ack_id])


main()
