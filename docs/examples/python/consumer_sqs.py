"""Consumes events from a FIFO queue of SQS: the effect of each once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    DATABASE_URL=postgres://app@localhost/app python consumer_sqs.py orders.fifo

The reasons: docs/guides/consumers.md. Any fault ends the process; a supervisor starts it again.
"""

import base64
import json
import os
import signal
import sys

import boto3
import psycopg

# Longer than ten events take: after it, SQS gives them to somebody else.
SECONDS_FOR_TEN = 60


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def read(message):
    """The event's attributes by name, and its payload; none is a tombstone."""
    event = {
        name: value["StringValue"] for name, value in message["MessageAttributes"].items()
    }
    # What no attribute may hold, and more that this consumer does not need.
    event.update(json.loads(event.pop("more", "{}")))
    match event.get("encoding"):
        case None:
            return event, message["Body"]
        case "base64":
            return event, base64.b64decode(message["Body"]).decode()
        case "empty":
            return event, ""
        case "tombstone":
            return event, None
        case other:
            raise RuntimeError(f"an encoding of another version: {other}")


def handle(database, message):
    event, body = read(message)
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
    (queue,) = sys.argv[1:]
    sqs = boto3.client("sqs")
    url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as database:
        print("waiting for events", flush=True)
        while not stopping:
            answer = sqs.receive_message(
                QueueUrl=url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                VisibilityTimeout=SECONDS_FOR_TEN,
                WaitTimeSeconds=1,
            )
            # In their order. One that fails ends the process, so that none overtakes it.
            for message in answer.get("Messages", []):
                handle(database, message)
                # After the effect, never before.
                sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


main()
