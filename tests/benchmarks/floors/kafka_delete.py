"""The floor of deleting topics of a Kafka cluster: list, delete all in one request, see them gone: BOOTSTRAP."""

import sys

from confluent_kafka.admin import AdminClient

admin = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
names = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
for future in admin.delete_topics(names, operation_timeout=60).values():
    future.result()
while not admin.list_topics(timeout=30).topics.keys().isdisjoint(names):
    pass
print(len(names))
