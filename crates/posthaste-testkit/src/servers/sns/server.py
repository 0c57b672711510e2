"""Runs moto on 127.0.0.1, and shows what a queue has without taking it away.

    python server.py PORT [PLAIN_PORT CERTIFICATE KEY]
"""

import json
import sys
from threading import Thread

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from moto.sqs.models import Queue, sqs_backends
from werkzeug.serving import WSGIRequestHandler, make_server

ACCOUNT, REGION, QUEUE = "123456789012", "eu-central-1", "/queue/"

# With each message that is sent all of its queue are counted, three times: nobody asks for these.
Queue.approximate_number_of_messages = 0
Queue.approximate_number_of_messages_delayed = 0
Queue.approximate_number_of_messages_not_visible = 0


def application(moto):
    def answer(environ, start_response):
        path = environ["PATH_INFO"]
        if environ["REQUEST_METHOD"] != "GET" or not path.startswith(QUEUE):
            return moto(environ, start_response)
        queue = sqs_backends[ACCOUNT][REGION].queues[path.removeprefix(QUEUE)]
        messages = [
            {"Body": message.body, "MessageAttributes": message.message_attributes}
            for message in list(queue._messages)
        ]
        body = json.dumps(messages).encode()
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
