"""Mountings applied by a process that is killed on the way: the next apply goes on, and so does `run`."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.plan_text import format_plan
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift_patch import accept
from reconciler.operations.run import run_once
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.embedded.mounts.recovered_topics import TOPIC, fill
from tests.embedded.samples import NOW, ids
from tests.operations.stage import STORED_CLUSTER, delete_namespace
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.planning.plan import Plan


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
    bench.write("manifests/west.yaml", STORED_CLUSTER.replace("NAME", "west"))
    bench.write("manifests/east.yaml", STORED_CLUSTER.replace("NAME", "east"))
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
    assert shop.opened("west").mounts.list_unfinished() == {}


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
    assert shop.opened("east").mounts.list_unfinished() == {}


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
    assert [(job.cluster, job.upkept.unit, job.upkept.done) for job in upkeep.jobs] == [
        ("east", "topic", 0),
        ("west", "topic", 1),
    ]
    assert TOPIC not in shop.opened("west").topics()
    assert [action.verb for action in shop.bench.plan().plan.actions] == ["adopt"]
    shop.apply()


# Off one cluster and onto another in one plan: what it shows, in which order, who continues it; and by hand.


TOGETHER = """\
apiVersion: reconciler/v1
kind: Mounting
metadata: {name: orders, namespace: shop, cluster: west}
spec: {state: unmounted}
---
apiVersion: reconciler/v1
kind: Mounting
metadata: {name: orders, namespace: shop, cluster: east}
spec: {state: mounted, as: later}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: later, namespace: shop, cluster: east}
spec: {partitions: 2, configs: {retention.ms: 30d}}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: back, cluster: west}
spec: {source: east, mirrorTopics: [{source: "shop:later"}]}
"""
UNMOUNT, MOUNT = "unmount:mounting/west/shop:orders", "mount:mounting/east/shop:orders"
CHANGE, MIRROR = "update:topic/east/shop:later", "create:mirror/west/shop:later"

DYING_AFTER = """
import os, signal, sys, time, uuid
from pathlib import Path
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop

def report(event):
    if type(event).__name__ == "ActionDone" and event.id == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)

here = Invocation(cwd=Path(sys.argv[1]), environ={}, now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
options = ApplyOptions(yes=True, leaves_jobs=True)
apply(here, Select(), options, Hooks(lambda _: True, report, Stop()))
"""


def opened(bench: Bench, name: str) -> EmbeddedCluster:
    root, storage = bench.folder / ".clusters" / name, bench.folder / "bucket"
    return EmbeddedCluster.open(DirectoryStore(root), now_ms=lambda: NOW, new_id=ids(), storage=DirectoryStore(storage))


def values(bench: Bench, name: str, topic: str) -> list[bytes | None]:
    return [each.value for each in opened(bench, name).consume(topic)]


@pytest.fixture
def two(bench: Bench) -> Bench:
    """Two clusters on one object storage; on `west` a topic with records."""
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", STORED_CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", ORDERS)
    assert bench.apply().verdict is None
    west = opened(bench, "west")
    for partition in (0, 1):
        fill(west, 3, partition=partition)
    return bench


def unmount_by_hand(bench: Bench, cluster: str, topic: str) -> None:
    mounts = opened(bench, cluster).mounts
    mounts.unmount(topic)
    assert set(mounts.finish().values()) == {None}


def take_in(bench: Bench, pattern: str) -> None:
    """Apply the patch that accepts what is there, as git does."""
    accepted = accept(bench.invocation, Select(), (pattern,))
    assert (accepted.notes, accepted.left_out) == ((), 0)
    command = ["git", "apply", "-"]
    subprocess.run(command, cwd=bench.folder, input=accepted.patch.encode(), check=True)


def test_one_plan_takes_a_topic_off_one_cluster_onto_another_in_order(two: Bench) -> None:
    (two.folder / "manifests/orders.yaml").unlink()
    two.write("manifests/together.yaml", TOGETHER)
    plan = two.plan().plan
    assert not plan.errors
    by_id = {action.id: action for action in plan.actions}
    unmount, mount = by_id[UNMOUNT].estimate, by_id[MOUNT].estimate
    assert by_id[UNMOUNT].risk == "disruptive"
    assert not plan.blocked
    assert unmount.location == mount.location
    assert (unmount.location or "").startswith(f"{TOPIC}/{opened(two, 'west').cluster_id}/")
    assert (unmount.partitions, unmount.records, unmount.uploads > 0, unmount.no_writes_seconds) == (2, 24, True, 2)
    assert (mount.partitions, mount.records, mount.bytes, mount.uploads) == (2, 24, unmount.bytes, 0)
    assert UNMOUNT in by_id[MOUNT].depends_on
    assert MOUNT in by_id[CHANGE].depends_on
    assert {MOUNT, CHANGE} <= set(by_id[MIRROR].depends_on)
    text = to_plain_text(format_plan(plan))
    assert " to flush, about 2 s without writes, " in text
    assert " come back, 0 bytes copied " in text


@pytest.mark.thorough
def test_an_apply_that_dies_between_the_two_is_resumed(two: Bench) -> None:
    before = values(two, "west", TOPIC)
    (two.folder / "manifests/orders.yaml").unlink()
    two.write("manifests/together.yaml", TOGETHER)
    done = ran(DYING_AFTER, str(two.folder), UNMOUNT)
    assert done.returncode == -9, done.stderr
    assert TOPIC not in opened(two, "west").catalog.read().topics
    assert "shop:later" not in opened(two, "east").catalog.read().topics
    state_unlock(two.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=two.stop)
    resumed = two.apply(options=ApplyOptions(yes=True, resumes=True, leaves_jobs=True))
    assert resumed.verdict is None
    assert values(two, "east", "shop:later") == before
    assert [action.id for action in two.plan().plan.actions] == ["mirror:mirror/west/shop:later"]


def test_what_is_offered_in_place_of_a_blocked_delete_can_be_written_as_it_stands(two: Bench) -> None:
    (two.folder / "manifests/orders.yaml").unlink()
    plan = two.plan().plan
    (action,) = plan.blocked
    assert action.blocked is not None
    assert action.blocked.instead is not None
    assert action.blocked.instead in to_plain_text(format_plan(plan))
    two.write("manifests/asleep.yaml", f"{action.blocked.instead}\n")
    assert two.plan().plan.blocked == ()
    assert two.apply().verdict is None
    assert two.plan().plan.is_empty
    assert [each.state for each in opened(two, "west").mounts.list_detached()] == ["detached"]


def test_a_namespace_goes_after_what_is_unmounted_in_it(two: Bench) -> None:
    (two.folder / "manifests/orders.yaml").unlink()
    cluster, _, _ = STORED_CLUSTER.replace("NAME", "west").partition("---\n")
    two.write("manifests/west.yaml", cluster)
    two.write("manifests/together.yaml", TOGETHER.partition("---\n")[0])
    plan = two.plan().plan
    delete = next(action for action in plan.actions if action.id == "delete:namespace/west/shop")
    assert UNMOUNT in delete.depends_on
    assert delete.blocked is None
    assert two.apply().verdict is None
    assert two.plan().plan.is_empty


def test_who_deletes_a_namespace_at_once_is_told_what_would_keep_its_records(two: Bench) -> None:
    shown: list[Plan] = []

    def decline(plan: Plan) -> bool:
        shown.append(plan)
        return False

    with pytest.raises(UserError, match="not confirmed"):
        delete_namespace(two.acting(), "west", "shop", confirm=decline, allow=["delete:topic/west/*"])
    (warning,) = shown[0].warnings
    assert "first: {apiVersion: reconciler/v1, kind: Mounting, metadata: {name: orders" in warning.hint
