"""Mirror a topic from one Kafka cluster to another, exactly once, in a Spark that is warm.

In turns with two bare loops side by side; then MirrorMaker 2, tuned and exactly once, one time each. Prints the seconds
that each took, medians where there are more. Arguments: FOLDER, RECORDS, REPETITIONS.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from mirrormaker import EXACTLY_ONCE, TUNED, seconds_for
from reconciler.jobs.copy import copy_log
from reconciler.jobs.session import start_session
from reconciler.providers.brokers.records.copy_sink import CopySink, CopyTarget
from reconciler.resources.workspace import SparkSpec
from tests.engines import on
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import build_record_settings, kafka_log, make_topic

PARTITIONS, TOPIC = 6, "bench"
LOOP = str(Path(__file__).resolve().parents[1] / "floors" / "kafka_loop.py")
folder, records, repetitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
each = records // PARTITIONS
records = each * PARTITIONS


def fill(kafka: Kafka, topic: str) -> None:
    """Write records of 10 bytes of key and 200 of value, so that no two batches are the same."""
    settings = {"linger.ms": 50, "batch.num.messages": 100_000, "queue.buffering.max.kbytes": 1 << 20}
    producer = Producer({**build_record_settings(kafka), **settings})
    noise = os.urandom(4096).hex().encode()
    for number in range(records):
        at = number * 7 % 7_900
        while True:
            try:
                producer.produce(
                    topic, noise[at : at + 200], b"k%09d" % number, number % PARTITIONS, timestamp=1 + number
                )
            except BufferError:
                producer.poll(0.1)
            else:
                break
    producer.flush()


def looped(west: Kafka, east: Kafka) -> float:
    """Copy with two bare loops, each half of the partitions; return the seconds of the slower one."""
    make_topic(east, TOPIC, partitions=PARTITIONS)
    halves = (range(PARTITIONS // 2), range(PARTITIONS // 2, PARTITIONS))
    ends = (west.bootstrap(), east.bootstrap(), TOPIC, str(each))
    loops = [
        subprocess.Popen([sys.executable, LOOP, *ends, *map(str, half)], stdout=subprocess.PIPE, text=True)
        for half in halves
    ]
    return max(float(loop.communicate()[0].split()[-1]) for loop in loops)


def mirrored(west: Kafka, east: Kafka, name: str) -> float:
    """Mirror once, all partitions; return the seconds it took, from being asked to the last commit."""
    make_topic(east, name, partitions=PARTITIONS)
    target = CopyTarget(build_record_settings(east), "east", name, None, PARTITIONS, "bench")
    began = time.perf_counter()
    copy = copy_log(on(spark.session), kafka_log(west, TOPIC), CopySink(target))
    if copy.records != records:
        sys.exit(f"{copy.records} records were copied, not {records}")
    return time.perf_counter() - began


def made(west: Kafka, settings: dict[str, str]) -> float:
    """Mirror once with MirrorMaker 2, into a cluster of its own: it keeps there what it does."""
    with Kafka.start(heap="1g") as east:
        make_topic(east, TOPIC, partitions=PARTITIONS)
        return seconds_for(TOPIC, (west.bootstrap(), east.bootstrap()), records, settings, folder)


took: dict[str, list[float]] = {"loops": [], "ours": []}
with Kafka.start(heap="1g") as west:
    make_topic(west, TOPIC, partitions=PARTITIONS)
    fill(west, TOPIC)
    with start_session(SparkSpec(master="local[2]"), environ=os.environ) as spark:
        for number in range(repetitions + 1):
            with Kafka.start(heap="1g") as east:
                make_topic(east, "__reconciler", partitions=1, cleanup_policy="compact")
                seconds = {"loops": looped(west, east), "ours": mirrored(west, east, f"copy-{number}")}
            if number:  # the first warms the source and Spark
                for name, one in seconds.items():
                    took[name].append(one)
    found = {name: statistics.median(some) for name, some in took.items()}
    found |= {"tuned": made(west, TUNED), "once": made(west, EXACTLY_ONCE)}
print(json.dumps(found))
