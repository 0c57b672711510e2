"""Runs moto on 127.0.0.1, shows what a queue has without taking it away, and lets Kinesis refuse.

    python server.py PORT [PLAIN_PORT CERTIFICATE KEY]
"""

import json
import sys
from functools import wraps
from threading import Lock, Thread
from urllib.parse import parse_qsl

from moto.core.exceptions import JsonRESTError
from moto.kinesis.models import KinesisBackend, Shard
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs.models import Queue, sqs_backends
from werkzeug.serving import WSGIRequestHandler, make_server

ACCOUNT, REGION, QUEUE, REFUSE = "123456789012", "eu-central-1", "/queue/", "/refuse/"

# With each message that is sent all of its queue are counted, three times: nobody asks for these.
Queue.approximate_number_of_messages = 0
Queue.approximate_number_of_messages_delayed = 0
Queue.approximate_number_of_messages_not_visible = 0
# The same of each record.
Shard.get_max_sequence_number = lambda shard: next(reversed(shard.records), 0)

# Of a request. AWS reads none that is much larger than a service takes.
BYTES_MAX = 8 << 20
# By stream, the codes that the records of a key are refused with.
refused = {}
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


def application(moto):
    def answer(environ, start_response):
        path = environ["PATH_INFO"]
        size = int(environ.get("CONTENT_LENGTH") or 0)
        if size > BYTES_MAX:
            environ["wsgi.input"].read(size)
            start_response("413 Request Entity Too Large", [("Content-Length", "0")])
            return []
        is_own = environ["REQUEST_METHOD"] == "GET" and path.startswith((QUEUE, REFUSE))
        if not is_own:
            return moto(environ, start_response)
        if path.startswith(QUEUE):
            told = messages(path.removeprefix(QUEUE))
        else:
            told = refused[path.removeprefix(REFUSE)] = dict(parse_qsl(environ["QUERY_STRING"]))
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
