"""A workspace with a source, a link and what becomes of its mirrors; records written and read past the workspace."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.drift_patch import Accepted, accept
from reconciler.operations.run import run_once
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.embedded.samples import NOW, ids

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.mirrors.mirror_rounds import Upkeep

CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: NAME}
spec:
  embedded: {root: "file://.clusters/NAME"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: NAME}
"""
TOPIC = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 2}
"""
LINK = """\
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: dr, cluster: east}
spec:
  source: west
  mode: MODE
  mirrorTopics:
    - source: "shop:orders"
      state: ROLE
"""
SOURCE = "topic/west/shop:orders"
MIRROR = "mirror/east/shop:orders"
COPY = "topic/east/shop:orders"
BACK = "mirror/west/shop:orders"
ORDERS = "shop:orders"


def opened(bench: Bench, name: str) -> EmbeddedCluster:
    """Open a cluster as some other process would."""
    return EmbeddedCluster.open(DirectoryStore(bench.folder / ".clusters" / name), now_ms=lambda: NOW, new_id=ids())


def produce(bench: Bench, cluster: str, *values: str, partition: int = 0) -> None:
    """Append records."""
    with opened(bench, cluster).producer() as producer:
        for value in values:
            producer.send(ORDERS, value, partition=partition)


def values(bench: Bench, cluster: str, partition: int = 0) -> list[str]:
    """Return what can be read."""
    found = opened(bench, cluster).consume(ORDERS)
    return [(one.value or b"").decode() for one in found if one.partition == partition]


def want(bench: Bench, role: str, mode: str = "bidirectional") -> None:
    """Declare the role of the mirror."""
    bench.write("manifests/link.yaml", LINK.replace("ROLE", role).replace("MODE", mode))


def mirroring(bench: Bench, mode: str = "bidirectional") -> Bench:
    """Return the bench with ten records on `west`, mirrored to `east`."""
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    bench = bench.with_(environ=dict(os.environ))
    assert bench.apply().verdict is None
    produce(bench, "west", *(f"a{number}" for number in range(5)))
    produce(bench, "west", *(f"b{number}" for number in range(5)), partition=1)
    want(bench, "mirroring", mode)
    assert bench.apply().verdict is None
    assert planned(bench) == []
    return bench


def planned(bench: Bench) -> list[str]:
    """Return what a plan would do; it has no errors."""
    plan = bench.plan().plan
    assert not plan.errors, plan.errors
    return [action.id for action in plan.actions]


def waiting(bench: Bench) -> list[tuple[str, str]]:
    """Return what a plan waits for."""
    return [(each.address, each.state) for each in bench.plan().plan.waiting]


def upkeep(bench: Bench, *only: str) -> Upkeep:
    """Do one pass of `run`."""
    return run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=only,
        report=bench.events.append,
        stop=bench.stop,
    )


def status(bench: Bench, cluster: str = "east") -> str:
    """Return the state a mirror keeps; an ordinary topic has none."""
    mirror = opened(bench, cluster).catalog.read().topics[ORDERS].mirror
    return "" if mirror is None else mirror.state


def take_in(bench: Bench, pattern: str = "*") -> Accepted:
    """Apply the patch that accepts what is there, as git does."""
    accepted = accept(bench.invocation, Select(), (pattern,))
    subprocess.run(["git", "apply", "-"], input=accepted.patch.encode(), cwd=bench.folder, check=True)
    return accepted
