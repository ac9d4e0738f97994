"""The floor of deleting topics of a Kafka cluster: connect, list, delete all in one request: BOOTSTRAP."""

import sys

from confluent_kafka.admin import AdminClient

admin = AdminClient({"bootstrap.servers": sys.argv[1], "log_level": 0})
names = [name for name in admin.list_topics(timeout=30).topics if not name.startswith("__")]
for future in admin.delete_topics(names, operation_timeout=60).values():
    future.result()
print(len(names))
