"""Topics made from object storage by plan and apply: what is refused, what is shown, who goes on after a crash."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.keys import build_mountable_key
from reconciler.archives.location import TopicLocation
from reconciler.archives.ownership import Ownership, OwnershipState
from reconciler.archives.recoverable import check_recoverable
from reconciler.embedded.catalog.topics import TopicShape, recover_topic
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.register import Register
from reconciler.operations.run import run_once
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.resources.address import Address
from reconciler.state.snapshots import read_snapshot
from tests.embedded.mounts.recovered_topics import TOPIC, fill, records_in, say
from tests.embedded.samples import NOW, ids
from tests.embedded.tiered.tiered_cluster import archive
from tests.operations.stage import STORED_CLUSTER
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: west}
spec: {partitions: 2, configs: {remote.write: true, remote.read: true}}
"""
RECOVERED = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: orders, namespace: shop, cluster: east}
spec: {recoverFrom: "LOCATION"}
"""
ADDRESS = "topic/east/shop:orders"


def opened(bench: Bench, name: str) -> EmbeddedCluster:
    root, storage = bench.folder / ".clusters" / name, bench.folder / "bucket"
    return EmbeddedCluster.open(DirectoryStore(root), now_ms=lambda: NOW, new_id=ids(), storage=DirectoryStore(storage))


@pytest.fixture
def location(bench: Bench) -> str:
    """A cluster `west` with a topic that lies in object storage, and a cluster `east` that is declared."""
    bench.write("manifests/west.yaml", STORED_CLUSTER.replace("NAME", "west"))
    bench.write("manifests/orders.yaml", ORDERS)
    bench.apply()
    west = opened(bench, "west")
    for partition in (0, 1):
        fill(west, 3, partition=partition)
        archive(west, TOPIC, partition)
    say(west)
    bench.write("manifests/east.yaml", STORED_CLUSTER.replace("NAME", "east"))
    return f"{TOPIC}/{west.cluster_id}/1"


def declare(bench: Bench, location: str) -> None:
    bench.write("manifests/recovered.yaml", RECOVERED.replace("LOCATION", location))


@pytest.mark.fact("F-R-006")
def test_a_topic_is_planned_recovered_and_then_there_is_nothing_to_do(bench: Bench, location: str) -> None:
    declare(bench, location)
    planned = bench.plan()
    action = next(each for each in planned.plan.actions if each.address == ADDRESS)
    assert action.parameters == {"recoverFrom": location, "partitions": 2}
    assert action.reasons == ("declared", "recovered")
    assert (action.estimate.records, action.estimate.bytes > 0) == (24, True)
    applied = bench.apply()
    assert applied.verdict is None
    assert records_in(opened(bench, "east")) == records_in(opened(bench, "west"))
    assert bench.plan().plan.is_empty
    bench.write("manifests/recovered.yaml", RECOVERED.replace('{recoverFrom: "LOCATION"}', "{partitions: 2}"))
    bench.apply()
    assert bench.plan().plan.is_empty  # removing recoverFrom later changes nothing but what we remember
    assert records_in(opened(bench, "east")) == records_in(opened(bench, "west"))


@pytest.mark.fact("F-R-006")
def test_remote_recovery_finds_the_topic_by_its_name_and_later_has_no_effect(bench: Bench, location: str) -> None:
    text = RECOVERED.replace('{recoverFrom: "LOCATION"}', "{partitions: 2, configs: {remote.recovery: true}}")
    bench.write("manifests/recovered.yaml", text)
    action = next(each for each in bench.plan().plan.actions if each.address == ADDRESS)
    assert action.parameters["recoverFrom"] == location
    bench.apply()
    before = records_in(opened(bench, "east"))
    assert before == records_in(opened(bench, "west"))
    assert bench.plan().plan.is_empty
    fill(opened(bench, "east"), 1, first=12)
    assert bench.apply().result is None
    assert len(records_in(opened(bench, "east"))[0]) == 16


def test_what_cannot_be_recovered_is_refused_at_plan_by_file_and_line(bench: Bench, location: str) -> None:
    place = location.removeprefix(f"{TOPIC}/")
    cases = {f"{TOPIC}/{place[:-1]}7": "there is no topic at", f"shop:clicks/{place}": f"is the topic {TOPIC}"}
    for text, message in cases.items():
        declare(bench, text)
        refused = bench.plan().plan.errors
        assert [(found.address, found.source) for found in refused] == [(ADDRESS, "manifests/recovered.yaml:1")]
        assert message in refused[0].message
    declare(bench, location)
    storage = DirectoryStore(bench.folder / "bucket")
    cluster_id, _ = place.split("/")
    register = Register(storage, build_mountable_key(TOPIC, cluster_id, 1), format="reconciler.mountable/1")
    register.swap(
        None, Ownership(TopicLocation.parse(location), OwnershipState.CLAIMED, "north", "theirs", TOPIC).to_json()
    )
    assert [found.message for found in bench.plan().plan.errors] == [
        f"recoverFrom: {location} is mounted on cluster north"
    ]
    storage.delete([register.key])
    storage.put(f"topics/{place}/topic.json", b'{"format": "reconciler.topic/9"}')
    assert "written by a newer version" in bench.plan().plan.errors[0].message
    with pytest.raises(UserError, match="written by a newer version"):
        bench.apply()
    assert not (bench.folder / ".clusters" / "east").exists()


def test_a_location_that_is_none_is_refused_by_validate(bench: Bench, location: str) -> None:
    declare(bench, location.rpartition("/")[0])
    with pytest.raises(UserError, match="not a location: <topic>/<cluster-uuid>/<revision>"):
        bench.plan()


def test_without_object_storage_nothing_is_recovered(bench: Bench, location: str) -> None:
    bench.write(
        "manifests/east.yaml", STORED_CLUSTER.replace("NAME", "east").replace('  objectStorage: "file://bucket"\n', "")
    )
    declare(bench, location)
    assert [found.message for found in bench.plan().plan.errors] == ["recoverFrom: cluster east has no object storage"]


def half_way(bench: Bench, location: str) -> EmbeddedCluster:
    """Return `east` with a topic whose recovery began and was interrupted."""
    bench.apply()
    east = opened(bench, "east")
    assert east.storage is not None
    found = check_recoverable(east.storage, TopicLocation.parse(location), east.cluster_id)
    shape = TopicShape(partitions=found.partitions)
    east.catalog.commit(
        lambda draft: recover_topic(
            draft, TOPIC, shape, topic_id="begun", location=found.location, original=found.configs
        )
    )
    return east


def test_a_topic_found_half_way_is_waited_for_and_run_finishes_it(bench: Bench, location: str) -> None:
    east = half_way(bench, location)
    declare(bench, location)
    planned = bench.plan().plan
    assert [(each.address, each.state) for each in planned.waiting] == [(ADDRESS, "RECOVERING")]
    assert planned.is_empty
    upkeep = run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=["recoveries"],
        report=bench.events.append,
        stop=bench.stop,
    )
    assert upkeep.verdict is None
    assert [(job.cluster, job.upkept.done) for job in upkeep.jobs] == [("east", 1), ("west", 0)]
    assert records_in(east) == records_in(opened(bench, "west"))
    (copied,) = (job.upkept for job in upkeep.jobs if job.cluster == "east")
    assert copied.records == sum(map(len, records_in(east).values()))
    assert copied.bytes > 0
    assert [action.verb for action in bench.plan().plan.actions] == ["adopt"]


def test_a_job_that_was_asked_to_stop_goes_on_next_time(bench: Bench, location: str) -> None:
    east = half_way(bench, location)
    bench.stop.request()
    upkeep = run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=["recoveries"],
        report=bench.events.append,
        stop=bench.stop,
    )
    assert upkeep.is_stopped
    assert east.catalog.read().topics[TOPIC].recovering == location


def test_an_object_that_is_gone_is_told_by_the_plan_and_one_that_goes_later_leaves_the_topic_half_way(
    bench: Bench, location: str
) -> None:
    declare(bench, location)
    bucket = bench.folder / "bucket" / "topics"
    lost = next(bucket.glob("*/1/00001/4-*.parquet"))
    kept = bench.folder / "kept"
    shutil.move(lost, kept)
    (refused,) = bench.plan().plan.errors
    assert (
        f"objects that it needs are lost: partition 1, offsets 4 to 7 (topics/{location.split('/')[1]}/1/00001/4-"
        in (refused.message)
    )
    shutil.move(kept, lost)
    (bench.folder / "manifests" / "recovered.yaml").unlink()
    half_way(bench, location)
    declare(bench, location)
    shutil.move(lost, kept)
    run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=["recoveries"],
        report=bench.events.append,
        stop=bench.stop,
    )
    assert [(each.address, each.state) for each in bench.plan().plan.waiting] == [(ADDRESS, "RECOVERING")]
    shutil.move(kept, lost)
    run_once(
        SiteOptions(invocation=bench.invocation, select=Select()),
        only=["recoveries"],
        report=bench.events.append,
        stop=bench.stop,
    )
    assert records_in(opened(bench, "east")) == records_in(opened(bench, "west"))


def test_recovering_is_the_super_users(bench: Bench, location: str) -> None:
    bench.apply()
    declare(bench, location)
    errors = bench.with_(principal="User:anna").plan().plan.errors
    assert [found.address for found in errors] == [ADDRESS]
    assert "super user" in f"{errors[0].message} {errors[0].hint}"


# The dying process is a real one: it is killed in the middle of copying, with its lease held.
DYING = """
import os, signal, sys, time, uuid
from pathlib import Path
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop

copy_in, left = DirectoryStore.copy_from, [int(sys.argv[2])]

def copying(*given, **named):
    left[0] -= 1
    if left[0] < 0:
        os.kill(os.getpid(), signal.SIGKILL)
    copy_in(*given, **named)

DirectoryStore.copy_from = copying
here = Invocation(cwd=Path(sys.argv[1]), environ={}, now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
apply(here, Select(), ApplyOptions(yes=True), Hooks(lambda _: True, lambda _: None, Stop()))
"""


def test_an_apply_that_is_killed_while_it_copies_is_completed_by_the_next(bench: Bench, location: str) -> None:
    declare(bench, location)
    done = ran(DYING, str(bench.folder), "5")
    assert done.returncode == -9, done.stderr
    assert opened(bench, "east").catalog.read().topics[TOPIC].recovering == location
    state_unlock(bench.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=bench.stop)
    assert bench.apply().verdict is None
    assert records_in(opened(bench, "east")) == records_in(opened(bench, "west"))
    assert bench.plan().plan.is_empty
    snapshot = read_snapshot(DirectoryStore(bench.folder / ".reconciler"))
    assert snapshot is not None
    assert snapshot.record[Address(ADDRESS)].ownership == "created"
