"""Makes a topic of Pub/Sub and a subscription of its name that keeps the order of each key.

    GOOGLE_CLOUD_PROJECT=shop python make_pubsub_topic.py orders
"""

import os
import sys

from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient

(name,) = sys.argv[1:]
project = os.environ["GOOGLE_CLOUD_PROJECT"]
topic = PublisherClient.topic_path(project, name)
PublisherClient().create_topic(name=topic)
SubscriberClient().create_subscription(
    request={
        "name": SubscriberClient.subscription_path(project, name),
        "topic": topic,
        # It cannot be changed later.
        "enable_message_ordering": True,
    }
)
