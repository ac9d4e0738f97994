"""Mountings applied by a process that is killed on the way: the next apply goes on, and so does `run`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.run import run_once
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.embedded.samples import NOW, ids
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench

CLUSTER = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: NAME}
spec:
  embedded: {root: "file://.clusters/NAME"}
  objectStorage: "file://bucket"
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: NAME}
"""
ORDERS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 2, configs: {remote.write: true, remote.read: true}}
"""
MOUNTING = """\
apiVersion: reconciler/v1
kind: Mounting
metadata: {name: orders, namespace: shop, cluster: NAME}
spec: {state: STATE}
"""
TOPIC = "shop:orders"

# A real process, killed right after the commit that brings its migration to a state, with its lease held.
DYING = """
import os, signal, sys, time, uuid
from pathlib import Path
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop

swap, wanted = DirectoryStore.swap, f'"state":"{sys.argv[2]}"'.encode()

def swapping(store, key, body, **named):
    version = swap(store, key, body, **named)
    if key == "catalog/head.json" and wanted in body:
        os.kill(os.getpid(), signal.SIGKILL)
    return version

DirectoryStore.swap = swapping
here = Invocation(cwd=Path(sys.argv[1]), environ={}, now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
apply(here, Select(), ApplyOptions(yes=True), Hooks(lambda _: True, lambda _: None, Stop()))
"""


@dataclass
class Shop:
    """A topic of `west` with records, and what is declared of it."""

    bench: Bench

    def opened(self, name: str) -> EmbeddedCluster:
        root, storage = self.bench.folder / ".clusters" / name, self.bench.folder / "bucket"
        return EmbeddedCluster.open(
            DirectoryStore(root), now_ms=lambda: NOW, new_id=ids(), storage=DirectoryStore(storage)
        )

    def declare(self, name: str, state: str) -> None:
        text = MOUNTING.replace("NAME", name).replace("STATE", state)
        self.bench.write(f"manifests/mounting-{name}.yaml", text)

    def apply(self) -> None:
        """Apply, and find nothing to do afterwards."""
        assert self.bench.apply().verdict is None
        assert self.bench.plan().plan.is_empty

    def die_at(self, state: str) -> None:
        """Let an apply be killed when its migration has come to a state, and free its lease."""
        done = ran(DYING, str(self.bench.folder), state)
        assert done.returncode == -9, done.stderr
        state_unlock(self.bench.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=self.bench.stop)

    def values(self, name: str) -> list[bytes | None]:
        return [each.value for each in self.opened(name).consume(TOPIC)]


@pytest.fixture
def shop(bench: Bench) -> Shop:
    bench.write("manifests/west.yaml", CLUSTER.replace("NAME", "west"))
    bench.write("manifests/east.yaml", CLUSTER.replace("NAME", "east"))
    bench.write("manifests/orders.yaml", ORDERS)
    bench.apply()
    shop = Shop(bench)
    with shop.opened("west").producer() as producer:
        producer.send(TOPIC, b"kept", partition=0)
    return shop


@pytest.mark.thorough
@pytest.mark.fact("F-R-124")
@pytest.mark.parametrize("state", ["preparing", "cut_over"])
def test_an_apply_that_is_killed_while_it_unmounts_is_completed_by_the_next(shop: Shop, state: str) -> None:
    shop.declare("west", "unmounted")
    shop.die_at(state)
    shop.apply()
    assert TOPIC not in shop.opened("west").topics()
    assert shop.opened("west").mounts.under_way() == {}


@pytest.mark.thorough
@pytest.mark.fact("F-R-124")
@pytest.mark.parametrize("state", ["executing", "cut_over"])
def test_an_apply_that_is_killed_while_it_mounts_is_completed_by_the_next(shop: Shop, state: str) -> None:
    shop.declare("west", "unmounted")
    shop.apply()
    shop.declare("east", "mounted")
    shop.die_at(state)
    shop.apply()
    assert shop.values("east") == [b"kept"]
    assert shop.opened("east").mounts.under_way() == {}


def test_run_finishes_what_was_left_and_the_next_plan_only_remembers_it(shop: Shop) -> None:
    shop.declare("west", "unmounted")
    shop.opened("west").mounts.unmount(TOPIC, mounting=TOPIC)
    planned = shop.bench.plan().plan
    assert [(each.address, each.state) for each in planned.waiting if each.address.startswith("mounting/")] == [
        (f"mounting/west/{TOPIC}", "planned")
    ]
    report, stop = shop.bench.events.append, shop.bench.stop
    upkeep = run_once(
        SiteOptions(invocation=shop.bench.invocation, select=Select()), only=["migrations"], report=report, stop=stop
    )
    assert upkeep.verdict is None
    assert [(job.cluster, job.upkept.unit, job.upkept.done) for job in upkeep.jobs if job.upkept] == [
        ("east", "topic", 0),
        ("west", "topic", 1),
    ]
    assert TOPIC not in shop.opened("west").topics()
    assert [action.verb for action in shop.bench.plan().plan.actions] == ["adopt"]
    shop.apply()
