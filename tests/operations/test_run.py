"""`run`: every job on every cluster, once or again and again; what fails stops nothing else."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.applying.events import ActionDone, ActionFailed, ActionStarted
from reconciler.cli.json.runs_json import PIPELINE
from reconciler.cli.text.runs_text import format_pass, format_upkeep
from reconciler.errors import IncompleteError, PartialError, UsageError, UserError
from reconciler.operations.clusters.consume import ProduceOptions
from reconciler.operations.clusters.consume import produce as produce_records
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, PassResult
from reconciler.operations.run import CLUSTER_JOBS, JOBS, run_once, run_repeatedly
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.providers.protocol import MaintenanceJobResult
from tests.operations.stage import (
    CLUSTER,
    LINK,
    ORDERS,
    TOPIC,
    mirroring,
    opened,
    planned,
    produce,
    status,
    upkeep,
    values,
    want,
)
from tests.operations.stage import MIRROR as MIRROR_OF_WEST
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench


DAY = 86_400_000
NO_JAVA = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
EAST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec:
  embedded: {root: "file://.clusters/east"}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: users, cluster: east}
spec: {partitions: 2, configs: {cleanup.policy: compact, segment.bytes: 5000, min.cleanable.dirty.ratio: 0}}
"""


def once(bench: Bench, *only: str, select: Select | None = None) -> PassResult:
    return run_once(
        SiteOptions(invocation=bench.invocation, select=select or Select()),
        only=only,
        report=bench.events.append,
        stop=bench.stop,
    )


def feed(bench: Bench, topic: str, count: int) -> None:
    for batch in range(count):
        rows = "".join(json.dumps({"key": f"k{number % 5}", "value": batch}) + "\n" for number in range(20))
        options = ProduceOptions(input_format="jsonl", key_field="key")
        reach = SiteOptions(invocation=bench.invocation, select=Select())
        produce_records(reach, topic, options, stdin=io.BytesIO(rows.encode()), report=lambda *_: None)


def done_by(upkeep: PassResult) -> dict[str, int]:
    return {outcome.name: outcome.upkept.done for outcome in upkeep.jobs if outcome.upkept.done}


def lines_of(upkeep: PassResult) -> list[str]:
    return ["".join(span.text for span in line) for line in format_upkeep(upkeep)]


@pytest.fixture
def two(applied: Bench) -> Bench:
    """Two clusters with a topic each that there is something to do about; no Java."""
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("7d}", "7d, segment.bytes: 5000}"))
    applied.write("manifests/east.yaml", EAST)
    assert applied.apply().verdict is None
    bench = applied.with_(environ=NO_JAVA)
    feed(bench, "topic/west/shop:orders", 6)
    feed(bench, "topic/east/users", 6)
    bench.events.clear()
    return bench


def test_every_cluster_gets_what_it_needs_without_a_jvm(two: Bench) -> None:
    upkeep = once(two)
    assert upkeep.verdict is None
    assert done_by(upkeep) == {"roll:east": 2, "compact:east": 2, "roll:west": 3}
    assert [(outcome.cluster, outcome.job) for outcome in upkeep.jobs] == [
        *((cluster, job) for cluster in ("east", "west") for job in JOBS[1:-1]),
        ("east", "replicas"),
        ("west", "replicas"),
    ]
    assert done_by(once(two)) == {}


def test_what_object_storage_lost_is_put_again_before_retention_lets_the_local_copy_go() -> None:
    assert CLUSTER_JOBS.index("upload") < CLUSTER_JOBS.index("scrub") < CLUSTER_JOBS.index("retention")


def test_only_what_is_asked_for_is_done(two: Bench) -> None:
    upkeep = once(two, "roll", "sweep")
    assert {outcome.job for outcome in upkeep.jobs} == {"roll", "sweep"}
    assert done_by(upkeep) == {"roll:east": 2, "roll:west": 3}
    with pytest.raises(UsageError, match="no job 'rol'") as caught:
        once(two, "rol")
    assert caught.value.hint == f"Did you mean roll? Jobs: {', '.join(JOBS)}."


def test_other_topics_than_the_targets_are_left_alone(two: Bench) -> None:
    assert done_by(once(two, select=Select(targets=("topic/east/*",)))) == {"roll:east": 2, "compact:east": 2}
    assert done_by(once(two, select=Select(excludes=("topic/west/shop:orders",)))) == {}
    assert done_by(once(two)) == {"roll:west": 3}


def test_what_has_expired_goes_by_our_clock(two: Bench) -> None:
    now_ms = two.invocation.now_ms
    late = two.with_(now_ms=lambda: now_ms() + 8 * DAY)
    upkeep = once(late, "retention")
    (retention,) = [outcome for outcome in upkeep.jobs if outcome.cluster == "west"]
    assert (retention.upkept.done, retention.upkept.unit) == (3, "partition")
    assert retention.upkept.records > 0
    text = lines_of(upkeep)
    assert text[0].split() == ["job", "cluster", "done", "records", "size", "took"]
    assert text[1].split()[:5] == ["retention", "west", "3", "partitions", str(retention.upkept.records)]


def test_a_cluster_that_is_lost_stops_no_other(two: Bench) -> None:
    shutil.rmtree(two.folder / ".clusters/west")
    upkeep = once(two)
    assert done_by(upkeep) == {"roll:east": 2, "compact:east": 2}
    assert isinstance(upkeep.verdict, PartialError)
    assert upkeep.verdict.exit_code == 8
    (lost,) = [outcome for outcome in upkeep.jobs if outcome.errors]
    assert (lost.name, lost.upkept, lost.failed) == ("observe:west", MaintenanceJobResult(), 1)
    assert "observe:west" in upkeep.verdict.message
    assert any("✗ observe:west: cannot read cluster west" in line for line in lines_of(upkeep))
    assert lost.error is not None
    assert "--exclude" not in lost.error.hint, "run has no such option"


def test_a_state_that_is_lost_stops_no_cluster(two: Bench) -> None:
    paths = [path for path in (two.folder / ".reconciler").rglob("*.json") if path.is_file()]
    assert paths
    for path in paths:
        path.write_bytes(b"{")
    upkeep = once(two)
    assert [outcome.name for outcome in upkeep.jobs if outcome.errors] == ["state"]
    assert len(done_by(upkeep)) == 3


def test_a_partition_that_cannot_be_read_is_told_and_the_rest_done(two: Bench) -> None:
    for part in sorted((two.folder / ".clusters/west/topics/shop/orders_0").iterdir()):
        part.unlink()
    upkeep = once(two)
    (roll,) = [outcome for outcome in upkeep.jobs if outcome.name == "roll:west"]
    assert (roll.upkept.done, roll.failed) == (2, 1)
    assert roll.errors[0].message.startswith("shop:orders, partition 0: the records at offsets")
    assert isinstance(upkeep.verdict, PartialError)
    failed = [event for event in two.events if isinstance(event, ActionFailed)]
    assert [event.id for event in failed] == ["roll:west"]
    document = PIPELINE.build_row(upkeep)
    (said,) = [job for job in document["jobs"] if job["errors"]]
    assert (said["job"], said["cluster"], said["unit"], said["done"], said["failed"]) == (
        "roll", "west", "partition", 2, 1
    )  # fmt: skip


@pytest.mark.parametrize("spark", ["{engine: spark}", "{inProcessBelow: 1}"])
def test_much_work_needs_spark_and_says_so(two: Bench, spark: str) -> None:
    two.write("reconciler.yaml", f"{(two.folder / 'reconciler.yaml').read_text()}spec: {{spark: {spark}}}\n")
    upkeep = once(two)
    failed = {outcome.name: outcome.errors[0].message for outcome in upkeep.jobs if outcome.errors}
    assert set(failed) == {"roll:east", "roll:west", "compact:east"}
    assert all("Java" in message for message in failed.values())


def test_each_job_tells_when_it_begins_and_ends(two: Bench) -> None:
    once(two, "roll")
    ids = [(type(event), event.id, str(event.address)) for event in two.events if not isinstance(event, ActionFailed)]  # type: ignore[union-attr]  # all have both
    assert ids == [
        (kind, f"roll:{cluster}", f"cluster/{cluster}")
        for cluster in ("east", "west")
        for kind in (ActionStarted, ActionDone)
    ]


def test_at_an_interval_it_goes_on_until_it_is_asked_to_stop(two: Bench) -> None:
    seen: list[PassResult] = []
    for passed in run_repeatedly(
        SiteOptions(invocation=two.invocation, select=Select()), 0.01, report=two.events.append, stop=two.stop
    ):
        seen.append(passed)
        if len(seen) == 2:
            feed(two, "topic/west/shop:orders", 3)
        if len(seen) == 4:
            two.stop.request()
    said = ["".join(span.text for span in format_pass(passed, number)) for number, passed in enumerate(seen, 1)]
    assert len(seen) == 4
    assert said[0].startswith("pass 1: roll 2 partitions (")
    assert said[1].startswith("pass 2: nothing to do in ")
    assert said[2].startswith("pass 3: roll 3 partitions (")


@pytest.mark.fact("F-C-056")
def test_a_config_that_is_changed_at_the_source_arrives_at_its_mirror_while_run_goes_on(bench: Bench) -> None:
    bench = mirroring(bench)
    clock, configs = itertools.count(bench.invocation.now_ms(), 60_000), []
    invocation = replace(bench.invocation, now_ms=lambda: next(clock))
    reach = SiteOptions(invocation=invocation, select=Select())
    for passed in run_repeatedly(reach, 0.01, only=("mirror",), report=bench.events.append, stop=bench.stop):
        assert passed.verdict is None
        configs.append(opened(bench, "east").topic(ORDERS).configs.get("retention.ms"))
        if configs == [None]:
            longer = TOPIC.replace("partitions: 2", "partitions: 2, configs: {retention.ms: 9d}")
            bench.write("manifests/orders.yaml", longer)
            assert bench.apply().verdict is None
        if configs[-1] is not None or len(configs) > 9:
            bench.stop.request()
    assert configs[-1] == str(9 * DAY)


def test_a_pass_that_fails_does_not_end_an_interval(two: Bench) -> None:
    root = two.folder / ".clusters/west"
    said = []
    for passed in run_repeatedly(
        SiteOptions(invocation=two.invocation, select=Select()), 0.01, report=two.events.append, stop=two.stop
    ):
        said.append("".join(span.text for span in format_pass(passed, len(said) + 1)))
        if len(said) == 1:
            root.rename(root.with_name("away"))
        if len(said) == 2:
            root.with_name("away").rename(root)
        if len(said) == 3:
            two.stop.request()
    assert "failed" not in said[0]
    assert said[1].endswith("; failed: observe:west")
    assert "failed" not in said[2]


def test_what_was_stopped_half_way_says_so(two: Bench) -> None:
    def forward_signals(event: Any) -> None:
        if isinstance(event, ActionDone) and event.id == "roll:east":
            two.stop.request()

    upkeep = run_once(SiteOptions(invocation=two.invocation, select=Select()), report=forward_signals, stop=two.stop)
    assert isinstance(upkeep.verdict, IncompleteError)
    through = CLUSTER_JOBS[: CLUSTER_JOBS.index("roll") + 1]
    assert [outcome.name for outcome in upkeep.jobs] == [f"{name}:east" for name in through]
    assert upkeep.is_stopped


def test_a_cluster_that_is_declared_and_not_made_yet_needs_nothing(bench: Bench) -> None:
    upkeep = once(bench)
    outcomes: tuple[JobOutcome, ...] = upkeep.jobs
    assert (upkeep.synced, outcomes, upkeep.verdict) == ((), (), None)


def test_upkeep_is_the_super_users(applied: Bench) -> None:
    eve = applied.with_(principal="User:eve")
    again = run_repeatedly(
        SiteOptions(invocation=eve.invocation, select=Select()), 1, report=eve.events.append, stop=eve.stop
    )
    for refused in (lambda: once(eve), lambda: once(eve, "retention"), lambda: next(again)):
        with pytest.raises(UserError, match="maintenance is done by the super user") as caught:
            refused()
        assert caught.value.hint == "Leave --principal out."


def test_what_is_only_marked_is_told_without_a_size() -> None:
    marked = JobOutcome("roll", "west", 1.0, MaintenanceJobResult("partition", 3))
    upkeep = PassResult((), (marked,), 1.0)
    assert "".join(span.text for span in format_pass(upkeep, 1)) == "pass 1: roll 3 partitions in 1 s"
    assert "0 B" not in "".join(lines_of(upkeep))


# A pass of `run` over a workspace with a link: records first, then the groups that read them.


GROUP = "shop:checkout"
SYNCING = 'consumerOffsetSync: {enabled: true, interval: INTERVAL, filters: [{name: "*"}]}\n  mirrorTopics:'


def following(bench: Bench, interval: str = "30s", replaced: str = "") -> Bench:
    """Return the bench with a link that brings groups; its mirror has the ten records of its source."""
    bench = mirroring(bench, "destination")
    link = LINK.replace("ROLE", "mirroring").replace("MODE", "destination")
    bench.write("manifests/link.yaml", link.replace("mirrorTopics:", replaced + SYNCING.replace("INTERVAL", interval)))
    assert bench.apply().verdict is None
    return bench


def commit(bench: Bench, offset: int, topic: str = ORDERS) -> None:
    opened(bench, "west").groups.commit(GROUP, {(topic, 0): offset})


def committed(bench: Bench, topic: str = ORDERS) -> int | None:
    """Return where the group would go on reading on `east`."""
    return opened(bench, "east").groups.read_committed_offsets(GROUP, [topic]).get((topic, 0))


@pytest.mark.fact("F-C-040", "F-C-041")
def test_after_one_pass_groups_stand_where_they_do_at_the_source(bench: Bench) -> None:
    bench = following(bench)
    produce(bench, "west", *map(str, range(3000)))
    commit(bench, 1700)
    assert upkeep(bench, "mirror").verdict is None
    assert committed(bench) == 1700


@pytest.mark.fact("F-C-020", "F-C-040")
def test_after_one_pass_groups_stand_in_mirrors_that_it_made(bench: Bench) -> None:
    bench = following(bench, replaced='autoCreate: {enabled: true, filters: [{name: "*"}]}\n  ')
    clicks = "shop:clicks"
    opened(bench, "west").create_topic(clicks)
    with opened(bench, "west").producer() as producer:
        for number in range(100):
            producer.send(clicks, str(number), partition=0)
    commit(bench, 60, clicks)
    done = upkeep(bench, "mirror")
    assert done.verdict is None
    assert committed(bench, clicks) == 60
    assert [(each.job, each.upkept.done) for each in done.jobs] == [("link", 2)]


@pytest.mark.fact("F-C-040")
def test_passes_of_an_interval_bring_groups_at_the_interval_of_groups(bench: Bench) -> None:
    bench = following(bench, "1h")
    commit(bench, 3)
    found = []
    for _ in run_repeatedly(
        SiteOptions(invocation=bench.invocation, select=Select()),
        0.0,
        only=["mirror"],
        report=bench.events.append,
        stop=bench.stop,
    ):
        found.append(committed(bench))
        commit(bench, 4)
        if len(found) == 3:
            bench.stop.request()
    assert found == [3, 3, 3]


@pytest.mark.parametrize(
    ("role", "left"), [("mirroring", {}), ("paused", {"PAUSED": 1}), ("failed-over", {"STOPPED": 1})]
)
def test_a_pass_counts_mirrors_that_it_leaves_alone(bench: Bench, role: str, left: dict[str, int]) -> None:
    bench = mirroring(bench, "destination")
    want(bench, role, "destination")
    bench.apply(Select(allow=("failover:mirror/*",)))
    assert upkeep(bench, "mirror").left == left


# `run --interval` over several links: ended by a signal in the middle of a transition, and one of two sources gone.
#
# Real processes: each is sent its signal by the very step that is named.


CLICKS = "shop:clicks"
DEADLINE_S = 60.0
RUN = ("run", "--interval", "1s", "--only", "mirror")
COMMAND = (sys.executable, "-m", "reconciler.cli.main")

SIGNALLED = """
import importlib, os, signal, sys
from reconciler.cli.main import main

module, kind, step, number = sys.argv[1:5]
owner = getattr(importlib.import_module(module), kind)
whole = getattr(owner, step)

def signalled(*given, **named):
    setattr(owner, step, whole)
    os.kill(os.getpid(), int(number))
    return whole(*given, **named)

setattr(owner, step, signalled)
sys.exit(main(sys.argv[5:]))
"""
LINKING = ("reconciler.embedded.link_side", "ClusterLinks")
BOOK = ("reconciler.providers.models", "MirrorEntries")
DRIVER = ("reconciler.operations.steps.transitions", "TransitionDriver")


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Two sources of one cluster; one more record waits on the first, whose mirror is being promoted."""
    shop = mirroring(bench)
    shop.write("manifests/north.yaml", CLUSTER.replace("NAME", "north"))
    shop.write("manifests/clicks.yaml", TOPIC.replace("orders", "clicks").replace("west", "north"))
    link = LINK.replace("dr,", "from-north,").replace("source: west", "source: north").replace("orders", "clicks")
    shop.write("manifests/clicks-link.yaml", link.replace("ROLE", "mirroring").replace("MODE", "destination"))
    assert shop.apply().verdict is None
    produce(shop, "west", "late")
    opened(shop, "east").linking.start_operation("shop:orders", "promote", operation="019a")
    assert status(shop) == "PENDING_STOPPED"
    return shop


def click(shop: Bench, value: str) -> None:
    with opened(shop, "north").producer() as producer:
        producer.send(CLICKS, value, partition=0)


def clicked(shop: Bench) -> list[str]:
    return [(one.value or b"").decode() for one in opened(shop, "east").consume(CLICKS)]


STEPS = [(*BOOK, "record_end_offsets"), (*LINKING, "advance_operation"), (*DRIVER, "drive")]


@pytest.mark.thorough
@pytest.mark.fact("F-C-063")
@pytest.mark.parametrize(
    "by", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.soak)], ids=["SIGTERM", "Ctrl-C"]
)
@pytest.mark.parametrize("step", STEPS, ids=[step for _, _, step in STEPS])
def test_a_run_ends_when_it_is_asked_and_the_next_one_ends_the_promotion(
    shop: Bench, step: tuple[str, str, str], by: signal.Signals
) -> None:
    done = ran(SIGNALLED, *step, str(by.value), *RUN, cwd=shop.folder)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 4}, (done.returncode, done.stderr)
    assert status(shop) in {"PENDING_STOPPED", "STOPPED"}
    assert upkeep(shop, "mirror").verdict is None
    assert status(shop) == "STOPPED"
    assert values(shop, "east")[-1] == "late"
    assert shop.apply().verdict is None
    assert planned(shop) == []


@pytest.mark.thorough
@pytest.mark.fact("F-C-069")
def test_a_source_that_is_gone_stops_no_mirror_of_another(shop: Bench) -> None:
    (shop.folder / ".clusters/west").rename(shop.folder / "lost")
    with subprocess.Popen(
        [*COMMAND, *RUN],
        cwd=shop.folder,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            for number in range(2):
                click(shop, f"c{number}")
                until = time.monotonic() + DEADLINE_S
                while len(clicked(shop)) <= number:
                    assert process.poll() is None
                    assert time.monotonic() < until
            assert status(shop) == "PENDING_STOPPED"
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=DEADLINE_S)
        finally:
            process.kill()
    assert "Traceback" not in said, said
    assert MIRROR_OF_WEST in said or "west" in said
    assert clicked(shop) == ["c0", "c1"]
    (shop.folder / "lost").rename(shop.folder / ".clusters/west")
    assert upkeep(shop, "mirror").verdict is None
    assert (status(shop), values(shop, "east")[-1]) == ("STOPPED", "late")
