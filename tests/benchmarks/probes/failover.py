"""Fail over MIRRORS of one cluster by one command; print the seconds of its rehearsal, and of itself.

Arguments: FOLDER, MIRRORS, PLATFORM. Clusters are folders, or two Kafka brokers; the command is a process of its own,
as in an emergency.
"""

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Producer

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from tests.servers.kafka import Kafka
from tests.servers.kafkatopics import build_record_settings

FILES = """\
apiVersion: reconciler/v1
kind: Workspace
metadata: {{name: bench}}
spec: {{state: "file://.state"}}
"""
EMBEDDED = 'provider: embedded, embedded: {{root: {{url: "file://.clusters/{name}"}}}}'
KAFKA = 'provider: kafka, kafka: {{bootstrapServers: ["{at}"]}}'
CLUSTER = "---\napiVersion: reconciler/v1\nkind: Cluster\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
TOPIC = (
    "---\napiVersion: reconciler/v1\nkind: Topic\nmetadata: {{name: {name}, cluster: west}}\nspec: {{partitions: 1}}\n"
)
LINK = (
    "---\napiVersion: reconciler/v1\nkind: MirrorLink\nmetadata: {name: twin, cluster: east}\nspec:\n  source: west\n"
)
folder, mirrors, platform = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
names = [f"orders-{number:05}" for number in range(mirrors)]


def typed(*arguments: str) -> float:
    """Run a command in the folder, and return how many seconds it took."""
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "reconciler.cli.main", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL
    )
    return time.perf_counter() - began


def measured(specs: dict[str, str], fill: Callable[[], None]) -> dict[str, float]:
    """Make the clusters and mirrors, let each mirror lag, and fail them over."""
    (folder / "manifests").mkdir(parents=True)
    (folder / "reconciler.yaml").write_text(FILES.format())
    clusters = "".join(CLUSTER.format(name=name, spec=spec) for name, spec in specs.items())
    listed = "  mirrorTopics:\n" + "".join(f"    - {{source: {name}}}\n" for name in names)
    text = clusters + "".join(TOPIC.format(name=each) for each in names) + LINK + listed
    (folder / "manifests/all.yaml").write_text(text)
    typed("apply", "--yes")
    fill()
    link = ("mirror", "failover", "--link", "link/east/twin")
    return {"rehearsed": typed(*link, "--dry-run"), "done": typed(*link, "--yes")}


def fill_folder() -> None:
    west = EmbeddedCluster.open(
        DirectoryStore(folder / ".clusters/west"),
        now_ms=lambda: time.time_ns() // 1_000_000,
        new_id=lambda: str(uuid.uuid4()),
    )
    with west.producer() as writer:
        for name in names:
            writer.send(name, "late", partition=0)
        writer.flush()


def fill_broker(kafka: Kafka) -> None:
    producer = Producer(build_record_settings(kafka))
    for name in names:
        producer.produce(name, b"late", partition=0)
    producer.flush()


if platform == "kafka":
    with Kafka.start(heap="1g") as west, Kafka.start(heap="1g") as east:
        at = {"west": KAFKA.format(at=west.bootstrap()), "east": KAFKA.format(at=east.bootstrap())}
        print(json.dumps(measured(at, lambda: fill_broker(west))))
else:
    print(json.dumps(measured({name: EMBEDDED.format(name=name) for name in ("west", "east")}, fill_folder)))
