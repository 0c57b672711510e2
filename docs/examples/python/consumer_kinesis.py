"""Consumes events from a stream of Kinesis: the effect of each once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    DATABASE_URL=postgres://app@localhost/app python consumer_kinesis.py orders

The reasons: docs/guides/consumers.md. Any fault ends the process; a supervisor starts it again.
"""

import base64
import json
import os
import signal
import sys
import time

import boto3
import psycopg

# A shard allows five reads a second, to all consumers together.
SECONDS_BETWEEN_READS = 0.5
# The position of a shard that was split or merged, once all of it was handled.
END = "end"


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def move(database, shard, position):
    database.execute(
        "insert into shard_position values (%s, %s)"
        " on conflict (shard) do update set position = excluded.position",
        (shard, position),
    )


def handle(database, shard, record):
    event = json.loads(record["Data"])
    body = event.get("payload")
    if "payload_base64" in event:
        body = base64.b64decode(event["payload_base64"]).decode()
    with database.transaction():
        # With the effect, never before it.
        move(database, shard, record["SequenceNumber"])
        new = database.execute(
            "insert into inbox (event_id) values (%s) on conflict do nothing", (event["id"],)
        )
        if new.rowcount == 0:
            print("seen before:", event["id"], flush=True)
            return
        apply(database, event.get("key"), "tombstone" if body is None else event["type"], body)


def shards_to_read(kinesis, stream, positions):
    """Those that have not ended. A key moves to a new shard when its old one ends, not before."""
    pages = kinesis.get_paginator("list_shards").paginate(StreamName=stream)
    shards = [shard for page in pages for shard in page["Shards"]]
    open_ones = {shard["ShardId"] for shard in shards if positions.get(shard["ShardId"]) != END}
    for shard in shards:
        parents = {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")}
        if shard["ShardId"] in open_ones and not parents & open_ones:
            yield shard["ShardId"]


def iterator(kinesis, stream, shard, position):
    start = {"ShardIteratorType": "TRIM_HORIZON"}
    if position:
        start = {
            "ShardIteratorType": "AFTER_SEQUENCE_NUMBER",
            "StartingSequenceNumber": position,
        }
    answer = kinesis.get_shard_iterator(StreamName=stream, ShardId=shard, **start)
    return answer["ShardIterator"]


def main():
    stopping = []
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stopping.append(True))
    (stream,) = sys.argv[1:]
    kinesis = boto3.client("kinesis")
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as database:
        print("waiting for events", flush=True)
        iterators = {}
        while not stopping:
            positions = dict(database.execute("select shard, position from shard_position"))
            for shard in shards_to_read(kinesis, stream, positions):
                place = iterators.get(shard) or iterator(
                    kinesis, stream, shard, positions.get(shard)
                )
                answer = kinesis.get_records(ShardIterator=place, Limit=1000)
                # In their order. One that fails ends the process, so that none overtakes it.
                for record in answer["Records"]:
                    handle(database, shard, record)
                iterators[shard] = answer.get("NextShardIterator")
                if not iterators[shard]:
                    move(database, shard, END)
            time.sleep(SECONDS_BETWEEN_READS)


main()
