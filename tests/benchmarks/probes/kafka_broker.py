"""Keep a broker: print how it is reached, and end it when standard input closes."""

import sys

from tests.servers.kafka import Kafka

# Ten thousand topics want files, memory and no index of ten megabytes each.
with Kafka.start(heap="1g", extra={"log.index.size.max.bytes": "65536"}) as kafka:
    print(kafka.bootstrap(), flush=True)
    sys.stdin.read()
