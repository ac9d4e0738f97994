"""The floor of looking at a Kafka cluster: connect, list its topics, describe them and their configs: BOOTSTRAP."""

import sys

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

admin = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
names = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
described = [future.result() for future in admin.describe_topics(TopicCollection(names)).values()]
wanted = [ConfigResource(ResourceType.TOPIC, name) for name in names]
configs = [future.result() for future in admin.describe_configs(wanted).values()]
print(len(described), sum(len(each) for each in configs))
