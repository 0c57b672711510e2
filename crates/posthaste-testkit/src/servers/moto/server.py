"""Runs moto on 127.0.0.1, shows what a queue has without taking it away, and lets requests fail.

    python server.py PORT [PLAIN_PORT CERTIFICATE KEY]

GET /fault?text=TEXT&… lets requests fail that have this text in their body, until /heal?text=TEXT:

    status, body    the answer instead of moto's
    act             cut, silent: no answer; stale: that of the first such request again and again

GET /held?text=TEXT tells how many requests a silent fault has held so far.
"""

import json
import socket
import sys
import time
from functools import wraps
from io import BytesIO
from threading import Lock, Thread
from urllib.parse import parse_qsl

from moto.core.exceptions import JsonRESTError
from moto.kinesis.models import KinesisBackend, Shard
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sns.models import SNSBackend
from moto.sqs.models import Queue, sqs_backends
from werkzeug.serving import WSGIRequestHandler, make_server

ACCOUNT, REGION, QUEUE, REFUSE = "123456789012", "eu-central-1", "/queue/", "/refuse/"
FAULT, HEAL, HELD = "/fault", "/heal", "/held"

# With each message that is sent all of its queue are counted, three times: nobody asks for these.
Queue.approximate_number_of_messages = 0
Queue.approximate_number_of_messages_delayed = 0
Queue.approximate_number_of_messages_not_visible = 0
# The same of each record.
Shard.get_max_sequence_number = lambda shard: next(reversed(shard.records), 0)

# A request that subscribes meanwhile spoils the look, and the answer leaves the message out.
SNSBackend._get_topic_subscriptions = lambda sns, topic: [
    subscription for subscription in list(sns.subscriptions.values()) if subscription.topic == topic
]

# Of a request. AWS reads none that is much larger than a service takes; objects may be larger.
BYTES_MAX, OBJECT_BYTES_MAX = 8 << 20, 80 << 20
# By stream, the codes that the records of a key are refused with.
refused = {}
# By a text in their body, how requests fail.
faults = {}
# The texts of requests that were held.
holding = []
# Two requests at once would give a number in a shard twice, and lose a record.
streams = Lock()


def one_at_a_time(method):
    @wraps(method)
    def locked(*arguments, **named):
        with streams:
            return method(*arguments, **named)

    return locked


def words(code, stream):
    match code:
        case "ProvisionedThroughputExceededException":
            shard = "shardId-000000000000"
            return f"Rate exceeded for shard {shard} in stream {stream} under account {ACCOUNT}."
        case "InternalFailure":
            return "Internal service failure."
    return ""


def refusing(put_records):
    @wraps(put_records)
    def put(backend, stream_arn, stream_name, records):
        codes = refused.get(stream_name, {})
        if code := codes.get("*"):
            raise JsonRESTError(code, words(code, stream_name))
        failed = [codes.get(record["PartitionKey"]) for record in records]
        taken = [record for record, code in zip(records, failed) if code is None]
        answer = put_records(backend, stream_arn, stream_name, taken)
        results = iter(answer["Records"])
        answer["Records"] = [
            {"ErrorCode": code, "ErrorMessage": words(code, stream_name)} if code else next(results)
            for code in failed
        ]
        answer["FailedRecordCount"] = len(records) - len(taken)
        return answer

    return put


KinesisBackend.put_records = one_at_a_time(refusing(KinesisBackend.put_records))
for name in ("get_records", "get_shard_iterator"):
    setattr(KinesisBackend, name, one_at_a_time(getattr(KinesisBackend, name)))


def messages(queue):
    queue = sqs_backends[ACCOUNT][REGION].queues[queue]
    return [
        {"Body": message.body, "MessageAttributes": message.message_attributes}
        for message in list(queue._messages)
    ]


def fail(text, fault, moto, environ, start_response):
    match fault.get("act"):
        case "stale":
            if "kept" not in fault:
                said = []
                body = b"".join(moto(environ, lambda *head, **_: said.append(head[:2])))
                fault["kept"] = said[-1], body
            head, body = fault["kept"]
            start_response(*head)
            return [body]
        case "silent":
            holding.append(text)
            while faults.get(text) is fault:
                time.sleep(0.02)
            raise ConnectionError
        case "cut":
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionError
    body = fault.get("body", "").encode()
    start_response(f"{fault['status']} So it is", [("Content-Length", str(len(body)))])
    return [body]


def application(moto):
    def answer(environ, start_response):
        path = environ["PATH_INFO"]
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size)
        is_object = environ["REQUEST_METHOD"] == "PUT"
        if size > (OBJECT_BYTES_MAX if is_object else BYTES_MAX):
            start_response("413 Request Entity Too Large", [("Content-Length", "0")])
            return []
        is_own = environ["REQUEST_METHOD"] == "GET"
        is_own = is_own and path.startswith((QUEUE, REFUSE, FAULT, HEAL, HELD))
        if not is_own:
            environ["wsgi.input"] = BytesIO(body)
            for text, fault in list(faults.items()):
                if text.encode() in body:
                    return fail(text, fault, moto, environ, start_response)
            return moto(environ, start_response)
        query = dict(parse_qsl(environ["QUERY_STRING"], keep_blank_values=True))
        if path.startswith(QUEUE):
            told = messages(path.removeprefix(QUEUE))
        elif path.startswith(REFUSE):
            told = refused[path.removeprefix(REFUSE)] = query
        elif path == HELD:
            told = holding.count(query["text"])
        else:
            text, told = query.pop("text"), query
            faults.pop(text, None)
            if path == FAULT:
                faults[text] = query
        body = json.dumps(told).encode()
        head = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response("200 OK", head)
        return [body]

    return answer


def main():
    port, *tls = sys.argv[1:]
    moto = application(DomainDispatcherApplication(create_backend_app))
    ports = [(port, tuple(tls[1:]) or None)] + [(plain, None) for plain in tls[:1]]
    # Or each request would have a connection of its own.
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    for port, context in ports:
        server = make_server("127.0.0.1", int(port), moto, threaded=True, ssl_context=context)
        Thread(target=server.serve_forever).start()
    print("all ports are served", flush=True)


main()
