"""Follow a steady producer for SECONDS, by rounds every INTERVAL seconds; print the worst lag, and memory over time.

Arguments: FOLDER, RECORDS a second, SECONDS, INTERVAL.
"""

import json
import resource
import subprocess
import sys
import time
import uuid
from pathlib import Path

from reconciler.embedded.catalog.mirror_tables import MirrorShape
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.jobs.verify import compare_logs
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.mirrors.mirror_rounds import MirrorRounds
from reconciler.operations.steps.mirror_copy import Copier
from reconciler.providers.embedded.provider import EmbeddedProvider
from reconciler.providers.protocol import Edge
from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrors import LinkEntry
from tests.embedded.samples import values
from tests.engines import here

TOPIC = "events"
KIB_OF_MIB = 1024


def now_ms() -> int:
    return int(time.time() * 1000)


def opened(name: str) -> EmbeddedCluster:
    return EmbeddedCluster.create(DirectoryStore(folder / name), now_ms=now_ms, new_id=lambda: str(uuid.uuid4()))


def provider(name: str) -> EmbeddedProvider:
    spec = {"embedded": {"root": f"file://{folder / name}"}}
    declared = Cluster.model_validate({"metadata": {"name": name}, "spec": spec})
    return EmbeddedProvider(
        declared, DirectoryStore(folder / name), Edge(folder, {}, lambda: str(uuid.uuid4()), now_ms)
    )


def produce() -> None:
    """Append so many records a second, ten times a second, for as long as is asked."""
    producer = opened("west").producer()
    batch = values(*(f"{number:084}" for number in range(rate // 10)))
    began = time.perf_counter()
    for tick in range(int(seconds * 10)):
        time.sleep(max(0.0, began + tick / 10 - time.perf_counter()))
        producer.append(TOPIC, batch)
        producer.flush()


folder, rate, seconds, interval = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4])
if sys.argv[5:] == ["produce"]:
    produce()
    sys.exit()

west, east = opened("west"), opened("east")
west.create_topic(TOPIC, partitions=4)
east.create_link("dr", LinkEntry("link-1", "west", {"source": "west"}))
east.create_mirror(TOPIC, MirrorShape(link="dr", source=TOPIC), west.source_topic(TOPIC))
follower = MirrorRounds(Copier({"west": provider("west"), "east": provider("east")}, here()), now_ms)
command = [sys.executable, __file__, *sys.argv[1:5], "produce"]
lags, peaks, rates = [], [], []
with subprocess.Popen(command) as producer:
    while producer.poll() is None:
        time.sleep(interval)
        # What readers of the mirror miss at worst is what it lacks right before a round ends.
        (one,) = follower.run_round(["east"]).synced
        ends = [log.read_bounds() for log in (west.log(TOPIC), east.log(TOPIC))]
        lags.append(sum(bound.end for bound in ends[0].values()) - sum(bound.end for bound in ends[1].values()))
        rates.append(one.records / max(one.seconds, 0.001))
        peaks.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_OF_MIB)
    if producer.wait():
        sys.exit("the producer failed")
follower.run_round(["east"])
if not compare_logs(here(), west.log(TOPIC), east.log(TOPIC)).is_equal:
    sys.exit("the copy differs")
third = len(peaks) // 3
print(
    json.dumps(
        {
            "lag": max(lags),
            "records": sum(b.end for b in east.log(TOPIC).read_bounds().values()),
            "early": peaks[third],
            "late": peaks[-1],
            "rate": max(rates),
            "lags": lags,
        }
    )
)
