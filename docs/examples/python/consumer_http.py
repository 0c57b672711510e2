"""Takes events as an HTTP endpoint: the effect of each happens once, in the order of its key.

    pip install -r requirements-consumers.txt
    psql "$DATABASE_URL" -f consumer.sql
    DATABASE_URL=postgres://app@localhost/app LISTEN=localhost:8080 WEBHOOK_SECRET=whsec_… \
        python consumer_http.py orders

The reasons: docs/guides/consumers.md. A relay posts with `format=structured` to
http://localhost:8080/orders. In production, put this behind a server that speaks TLS and takes care
of clients that send slowly.
"""

import base64
import json
import os
import signal
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import psycopg
from standardwebhooks import Webhook, WebhookVerificationError

TOPIC = sys.argv[1]
BODY_BYTES_MAX = 1 << 20
# A thread serves one connection, so each has a connection to the database.
LOCAL = threading.local()


def database():
    if getattr(LOCAL, "database", None) is None or LOCAL.database.closed:
        LOCAL.database = psycopg.connect(os.environ["DATABASE_URL"], autocommit=True)
    return LOCAL.database


def apply(database, order, what, body):
    """The effect. It must touch nothing but this transaction."""
    database.execute(
        "insert into order_log (order_id, what, body) values (%s, %s, %s)", (order, what, body)
    )


def text(event):
    """The payload, which CloudEvents have as JSON or in base64; None of a tombstone."""
    if "data_base64" in event:
        return base64.b64decode(event["data_base64"]).decode()
    return json.dumps(event["data"]) if "data" in event else None


def handle(database, identity, event):
    with database.transaction():
        new = database.execute(
            "insert into inbox (event_id) values (%s) on conflict do nothing", (identity,)
        )
        if new.rowcount == 0:
            print("seen before:", identity, flush=True)
            return
        what = event["type"] if event["type"] != "posthaste.event" else None  # one without a type
        body = text(event)
        apply(database, event["partitionkey"], "tombstone" if body is None else what, body)


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections are used again
    timeout = 60

    def do_POST(self):
        length = int(self.headers["content-length"])
        if self.path != f"/{TOPIC}" or length > BODY_BYTES_MAX:
            self.close_connection = True
            return self.answer(404 if length <= BODY_BYTES_MAX else 413)
        body = self.rfile.read(length)
        try:
            event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, dict(self.headers.items()))
        except (WebhookVerificationError, ValueError):
            return self.answer(401)
        try:
            handle(database(), self.headers["webhook-id"], event)
        except psycopg.OperationalError as error:
            print("the database is away:", error, file=sys.stderr, flush=True)
            return self.answer(503)  # not the event's fault: it comes again
        self.answer(204)  # after the effect, never before

    def answer(self, status):
        self.send_response(status)
        if status != 204:
            self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        """No line for each request."""


class Server(ThreadingHTTPServer):
    request_queue_size = 128  # a relay connects as often as it has requests under way


def main():
    host, port = os.environ["LISTEN"].rsplit(":", 1)
    server = Server((host, int(port)), Endpoint)
    for ending in (signal.SIGTERM, signal.SIGINT):
        # From another thread: this one waits within the server.
        signal.signal(ending, lambda *_: threading.Thread(target=server.shutdown).start())
    print("waiting for events", flush=True)
    server.serve_forever()


main()
