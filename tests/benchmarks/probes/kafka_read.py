"""Read a topic of RECORDS records from a broker REPETITIONS times into Arrow, in turns with a bare consumer.

Prints the medians. Arguments: RECORDS, REPETITIONS.
"""

import json
import statistics
import sys
import time

from kafkabare import PARTITIONS, TOPIC, consume, fill
from reconciler.records.log import OffsetRange
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import kafka_log, make_topic

records, repetitions = int(sys.argv[1]), int(sys.argv[2])


def ours(kafka: Kafka) -> int:
    log = kafka_log(kafka, TOPIC)
    ends = {number: bounds.end for number, bounds in log.read_bounds().items()}
    return sum(batch.num_rows for number, end in ends.items() for batch in log.read(number, OffsetRange(0, end)))


with Kafka.start(heap="1g") as kafka:
    make_topic(kafka, TOPIC, partitions=PARTITIONS)
    fill(kafka, records)
    took: dict[str, list[float]] = {"floor": [], "ours": []}
    for number in range(repetitions + 1):
        for name, read in (("floor", lambda: consume(kafka, records)), ("ours", lambda: ours(kafka))):
            began = time.perf_counter()
            counted = read()
            if number:  # the first only warms the broker
                took[name].append(time.perf_counter() - began)
            if counted != records:
                sys.exit(f"{name}: {counted} records were read, not {records}")
print(json.dumps({name: statistics.median(each) for name, each in took.items()}))
