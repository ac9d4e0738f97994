"""Archive a topic of RECORDS records from a broker into a folder REPETITIONS times, in a Spark that is warm.

In turns with a bare consumer into nothing. Prints the medians: of the copy alone, and of the copy and the comparison of
every record that comes before a delete. Arguments: FOLDER, RECORDS, REPETITIONS.
"""

import json
import os
import statistics
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from kafkabare import PARTITIONS, TOPIC, consume, fill
from reconciler.archives.archive import Archive, ArchivedTopic, begin_archive
from reconciler.archives.location import TopicLocation
from reconciler.archives.storage import create_storage, read_storage_id
from reconciler.embedded.mounts.archive_log import ArchiveLog, ArchiveSink
from reconciler.jobs.archive import ArchiveJob, archive_records
from reconciler.jobs.copy import copy_log
from reconciler.jobs.session import start_session
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.workspace import SparkSpec
from tests.engines import on
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import kafka_log, make_topic

CLUSTER = str(uuid.UUID(int=9))
folder, records, repetitions = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])


def place(name: str) -> Archive:
    """Return where a topic may be archived, with nothing there yet."""
    storage = DirectoryStore(folder / name)
    create_storage(storage, lambda: uuid.uuid4().hex)
    found = Archive(storage, TopicLocation(TOPIC, CLUSTER, 1), CLUSTER, read_storage_id(storage))
    begin_archive(found, ArchivedTopic(TOPIC, PARTITIONS, 1, {}, {}, {}), dict.fromkeys(range(PARTITIONS), 0), "bench")
    return found


def copied(kafka: Kafka, name: str) -> int:
    return copy_log(on(spark.session), kafka_log(kafka, TOPIC), ArchiveSink(place(name), PARTITIONS)).records


def compared(kafka: Kafka, name: str) -> int:
    there = place(name)
    sink, copy = ArchiveSink(there, PARTITIONS), ArchiveLog(there)
    log = kafka_log(kafka, TOPIC)
    ends = {number: bounds.end for number, bounds in log.read_bounds().items()}
    return archive_records(ArchiveJob(TOPIC, log, sink, copy, on(spark.session), lambda: ends)).records


took: dict[str, list[float]] = {"floor": [], "copied": [], "compared": []}
with Kafka.start(heap="1g") as kafka:
    make_topic(kafka, TOPIC, partitions=PARTITIONS)
    fill(kafka, records)
    with start_session(SparkSpec(master="local[2]"), environ=os.environ) as spark:
        ways: dict[str, Callable[[int], int]] = {
            "floor": lambda _: consume(kafka, records),
            "copied": lambda nth: copied(kafka, f"copied-{nth}"),
            "compared": lambda nth: compared(kafka, f"compared-{nth}"),
        }
        for number in range(repetitions + 1):
            for name, way in ways.items():
                began = time.perf_counter()
                counted = way(number)
                if number:  # the first warms the broker and Spark
                    took[name].append(time.perf_counter() - began)
                if counted != records:
                    sys.exit(f"{name}: {counted} records, not {records}")
print(json.dumps({name: statistics.median(each) for name, each in took.items()}))
