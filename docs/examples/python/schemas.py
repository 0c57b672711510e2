"""Prints the payloads of a file that a relay has written in the forms of a schema registry.

    python schemas.py http://localhost:8081 events.jsonl

A consumer of a broker does the same with a record's topic and value.
"""

import base64
import json
import sys

from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


class Reader:
    def __init__(self, address: str):
        self.registry = SchemaRegistryClient({"url": address})
        self.avro = AvroDeserializer(self.registry)
        self.json = JSONDeserializer(None, schema_registry_client=self.registry)

    def read(self, topic: str, value: bytes) -> object:
        """The payload, by the schema that its first five bytes name."""
        schema = self.registry.get_schema(int.from_bytes(value[1:5]))
        reader = self.json if schema.schema_type == "JSON" else self.avro
        return reader(value, SerializationContext(topic, MessageField.VALUE))


if __name__ == "__main__":
    reader = Reader(sys.argv[1])
    for line in open(sys.argv[2], encoding="utf-8"):
        event = json.loads(line)
        if "payload_base64" in event:
            value = base64.b64decode(event["payload_base64"])
        elif event["payload"] is None:
            continue
        else:
            value = event["payload"].encode()
        print(json.dumps(reader.read(event["topic"], value)))
