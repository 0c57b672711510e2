"""Consumes events from an MQTT topic: the effect of each happens once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    DATABASE_URL=postgres://app@localhost/app MQTT=localhost:1883 python consumer_mqtt.py orders

The reasons: docs/guides/consumers.md. Whatever goes wrong ends the process; a supervisor starts it again.
"""

import os
import signal
import sys
from urllib.parse import unquote

import paho.mqtt.client as mqtt
import psycopg
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

# The broker keeps messages for the session of this name while the consumer is away.
CLIENT_ID, NEVER_EXPIRES = "warehouse", 0xFFFFFFFF


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def handle(database, message):
    # The first of a name is the relay's. A `%` alone stands for none.
    pairs = reversed(message.properties.UserProperty)
    event = {name: None if value == "%" else unquote(value) for name, value in pairs}
    with database.transaction():
        new = database.execute(
            "insert into inbox (event_id) values (%s) on conflict do nothing", (event["id"],)
        )
        if new.rowcount == 0:
            print("seen before:", event["id"], flush=True)
            return
        is_tombstone = "tombstone" in event
        what = "tombstone" if is_tombstone else event.get("type")
        body = None if is_tombstone else message.payload.decode()
        apply(database, event.get("key"), what, body)


def main():
    stopping = []
    for ending in (signal.SIGTERM, signal.SIGINT):
        signal.signal(ending, lambda *_: stopping.append(True))
    (topic,) = sys.argv[1:]
    host, port = os.environ["MQTT"].split(":")
    client = mqtt.Client(
        mqtt.CallbackAPIVersion.VERSION2, CLIENT_ID, protocol=mqtt.MQTTv5, manual_ack=True
    )
    session = Properties(PacketTypes.CONNECT)
    session.SessionExpiryInterval = NEVER_EXPIRES
    with psycopg.connect(os.environ["DATABASE_URL"], autocommit=True) as database:

        def on_connect(client, _data, _flags, reason, _properties):
            if reason.is_failure:
                raise RuntimeError(f"the broker refused the connection: {reason}")
            client.subscribe(topic, qos=1)

        def on_subscribe(_client, _data, _id, reasons, _properties):
            if any(reason.is_failure for reason in reasons):
                raise RuntimeError(f"the broker refused the subscription: {reasons}")
            print("waiting for events", flush=True)

        def on_message(client, _data, message):
            handle(database, message)
            client.ack(message.mid, message.qos)  # after the effect, never before

        client.on_connect = on_connect
        client.on_subscribe = on_subscribe
        client.on_message = on_message
        client.connect(host, int(port), clean_start=False, properties=session)
        while not stopping:
            ended = client.loop(timeout=0.5)
            if ended != mqtt.MQTT_ERR_SUCCESS:
                raise RuntimeError(f"the connection ended: {mqtt.error_string(ended)}")
        client.disconnect()


main()
