"""The floor of creating topics on a Kafka cluster: BOOTSTRAP TOPICS.

Connect, list, describe what is there, create all in one request, and describe them until all are there.
"""

import sys

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

CONFIGS = {"cleanup.policy": "delete", "max.message.bytes": "4194304", "retention.ms": "604800000"}
bootstrap, count = sys.argv[1], int(sys.argv[2])
admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


def described(names: list[str]) -> int:
    """Describe topics and their configs; return how many there are."""
    if not names:
        return 0
    found = admin.describe_topics(TopicCollection(names))
    there = sum(1 for future in found.values() if future.exception() is None)
    if there == len(names):
        for future in admin.describe_configs([ConfigResource(ResourceType.TOPIC, name) for name in names]).values():
            future.result()
    return there


described([name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")])
new = [f"team-{number // 10:03d}.events.topic-{number:05d}" for number in range(count)]
for at in range(0, count, 1_000):  # brokers refuse larger requests
    for future in admin.create_topics([NewTopic(name, 1, 1, config=CONFIGS) for name in new[at : at + 1_000]]).values():
        future.result()
while described(new) != count:
    pass
print(count)
