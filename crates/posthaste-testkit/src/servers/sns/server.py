"""Runs moto on 127.0.0.1, and shows what a queue has without taking it away.

    python server.py PORT [PLAIN_PORT CERTIFICATE KEY]
"""

import base64
import json
import sys
from threading import Thread

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs.models import sqs_backends
from werkzeug.serving import WSGIRequestHandler, make_server

ACCOUNT, REGION, QUEUE = "123456789012", "eu-central-1", "/queue/"


def message(found):
    attributes = {}
    for name, value in found.message_attributes.items():
        kind = value["data_type"]
        text = value.get("string_value")
        if text is None:
            text = base64.b64encode(value["binary_value"]).decode()
        attributes[name] = {"DataType": kind, "StringValue": text}
    return {"Body": found.original_body, "MessageAttributes": attributes}


def application(moto):
    def answer(environ, start_response):
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] != "GET" or not path.startswith(QUEUE):
            return moto(environ, start_response)
        queue = sqs_backends[ACCOUNT][REGION].queues[path.removeprefix(QUEUE)]
        body = json.dumps([message(found) for found in list(queue._messages)]).encode()
        head = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        start_response("200 OK", head)
        return [body]

    return answer


def main():
    port, *tls = sys.argv[1:]
    moto = application(DomainDispatcherApplication(create_backend_app))
    servers = [make_server("127.0.0.1", int(port), moto, threaded=True, ssl_context=tuple(tls[1:]) or None)]
    if tls:
        servers.append(make_server("127.0.0.1", int(tls[0]), moto, threaded=True))
    # Or each request would have a connection of its own.
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    threads = [Thread(target=server.serve_forever) for server in servers]
    for thread in threads:
        thread.start()
    print("all ports are served", flush=True)


main()
