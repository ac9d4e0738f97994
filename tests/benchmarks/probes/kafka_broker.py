"""Keep a broker: print how it is reached, and end it when standard input closes.

It keeps its files in memory where that can be: a broker makes several files durable for each new topic, one by one, and
how fast a disk does that is not what is measured.
"""

import sys
import tempfile
from pathlib import Path

from tests.servers.kafka import Kafka

IN_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
if IN_MEMORY.is_dir():
    tempfile.tempdir = str(IN_MEMORY)
# Ten thousand topics want memory, and no index of ten megabytes each.
with Kafka.start(heap="1g", extra={"log.index.size.max.bytes": "65536"}) as kafka:
    print(kafka.bootstrap(), flush=True)
    sys.stdin.read()
