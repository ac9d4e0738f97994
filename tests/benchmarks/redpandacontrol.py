"""Plans, mounts and failovers on an emulated Redpanda, compared with the Kafka provider and with bare scripts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import urllib3

from measuring import HERE, RECONCILER, Row, Scale, compared, in_turns, process, script
from workspaces import write_workspace

_CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: west}
spec:
  provider: redpanda
  redpanda:
    bootstrapServers: %s
    adminUrls: %s
    admin: {username: admin, password: "${env:RECONCILER_PASSWORD}"}
  objectStorage: s3://redpanda-bucket
"""
_TOPIC = """\
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: %s, cluster: west}
spec: {partitions: 1, replicationFactor: 1, configs: {remote.read: "true", remote.write: "true"}}
"""
_MOUNTING = """\
---
apiVersion: reconciler/v1
kind: Mounting
metadata: {name: %s, cluster: west}
spec: {state: %s}
"""
_LINK = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-east, cluster: west}
spec:
  source: east
  autoCreate: {enabled: true, filters: [{name: "*"}]}%s
"""


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    with running_redpanda() as place:
        os.environ["RECONCILER_PASSWORD"] = place["password"]
        yield _planned(place, scale, scratch)
        yield _moved(place, scale, scratch)
    with running_redpanda() as source:
        yield _failed_over(source, scale, scratch)


@contextmanager
def running_redpanda() -> Iterator[dict[str, Any]]:
    """Yield how a cluster is reached; a process of its own emulates it."""
    command = ["env", f"PYTHONPATH={HERE.parents[1]}", sys.executable, "-m", "tests.servers.redpanda"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdin
        assert keeper.stdout
        try:
            yield json.loads(keeper.stdout.readline())
        finally:
            keeper.stdin.close()


def _planned(place: dict[str, Any], scale: Scale, scratch: Path) -> Row:
    """Plan without a state: every topic exists and is adopted."""
    topics = scale.of(1_000, 200)  # the emulation takes minutes for 10,000
    script("floors/kafka_create.py", place["kafka"], str(topics))
    brokers = '", "'.join(place["kafka"].split(","))
    by_kafka = write_workspace(scratch / "by-kafka", topics=topics, files=topics // 10, brokers=brokers)
    by_redpanda = scratch / "by-redpanda"
    shutil.copytree(by_kafka, by_redpanda)
    (by_redpanda / "manifests" / "cluster.yaml").write_text(_declare(place), encoding="utf-8")
    subjects = {
        "floor": lambda: process(RECONCILER, "plan", folder=by_kafka).seconds,
        "ours": lambda: process(RECONCILER, "plan", folder=by_redpanda).seconds,
    }
    what = f"a plan of {topics:,} topics on the emulated Redpanda, start to exit"
    return compared(what, "the provider of Kafka on the same brokers", in_turns(subjects, scale.of(3, 1)), aim=1.2)


def _moved(place: dict[str, Any], scale: Scale, scratch: Path) -> Row:
    topics = scale.of(500, 20)
    ours, bare = ([f"{kind}-{number:03d}" for number in range(topics)] for kind in ("ours", "bare"))
    folder = scratch / "moves"
    (folder / "manifests").mkdir(parents=True)
    shutil.copy(scratch / "by-redpanda" / "reconciler.yaml", folder)
    (folder / "manifests" / "cluster.yaml").write_text(_declare(place), encoding="utf-8")

    def apply(*documents: str) -> float:
        return _applied(folder, "".join(documents))

    apply(*(_TOPIC % name for name in (*ours, *bare)))

    def move() -> float:
        others = [_TOPIC % name for name in bare]
        unmounted = apply(*others, *(_MOUNTING % (name, "unmounted") for name in ours))
        mounts = [_MOUNTING % (name, "mounted") for name in ours]
        return unmounted + apply(*others, *mounts, *(_TOPIC % name for name in ours))

    floor = ("floors/redpanda_moves.py", place["admin"][0], place["password"], *bare)
    subjects = {"floor": lambda: script(*floor).seconds, "ours": move}
    what = f"unmount {topics} topics and mount them again, two applies"
    against = "a bare script that sends the same requests and polls"
    return compared(what, against, in_turns(subjects, scale.of(3, 1)), aim=1.5)


def _failed_over(source: dict[str, Any], scale: Scale, scratch: Path) -> Row:
    """Fail over as many topics each time, on a cluster of its own: what is still copied takes the emulation's time."""
    topics = scale.of(1_000, 50)
    script("floors/kafka_create.py", source["kafka"], str(topics))
    names = [f"team-{number // 10:03d}.events.topic-{number:05d}" for number in range(topics)]
    entries = "".join(f"\n    - {{source: {name}, state: failed-over}}" for name in names)
    times = {}
    for subject in ("floor", "ours"):
        with running_redpanda() as place:
            folder = _linked(source, place, topics, scratch / subject)
            floor = ("floors/redpanda_failover.py", place["admin"][0], place["password"], "from-east", *names)
            declared = _LINK % f"\n  mirrorTopics:{entries}"
            allow = ("--allow", "failover:mirror/west/*")
            times[subject] = script(*floor).seconds if subject == "floor" else _applied(folder, declared, *allow)
    against = "a bare script that sends the same requests and polls"
    return compared(f"fail over {topics:,} topics of a shadow link, one apply", against, times, aim=1.5)


def _linked(source: dict[str, Any], place: dict[str, Any], topics: int, folder: Path) -> Path:
    """Return a workspace whose cluster shadows all topics of a source."""
    (folder / "manifests").mkdir(parents=True)
    shutil.copy(folder.parent / "by-redpanda" / "reconciler.yaml", folder)
    switched = _declare(place).replace("spec:\n", "spec:\n  properties: {enable_shadow_linking: true}\n", 1)
    clusters = f"{switched}---\n{_declare(source).replace('name: west', 'name: east')}"
    (folder / "manifests" / "cluster.yaml").write_text(clusters, encoding="utf-8")
    _applied(folder, "")
    _applied(folder, _LINK % "")
    _wait_for_shadows(place, topics)
    return folder


def _applied(folder: Path, documents: str, *options: str) -> float:
    (folder / "manifests" / "all.yaml").write_text(documents, encoding="utf-8")
    return process(RECONCILER, "apply", "--yes", *options, folder=folder).seconds


def _wait_for_shadows(place: dict[str, Any], count: int) -> None:
    url = f"{place['admin'][0]}/redpanda.core.admin.v2.ShadowLinkService/ListShadowTopics"
    headers = urllib3.make_headers(basic_auth=f"{place['user']}:{place['password']}")
    while True:
        answer = urllib3.request("POST", url, json={"shadowLinkName": "from-east"}, headers=headers).json()
        if len(answer.get("shadowTopics", ())) == count:
            return
        time.sleep(1)


def _declare(place: dict[str, Any]) -> str:
    return _CLUSTER % (json.dumps(place["kafka"].split(",")), json.dumps(place["admin"]))
