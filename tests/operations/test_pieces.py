"""What commands are made of, where a whole command would show it only by luck."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.applying.engine import RunLease
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance.chores import Chore
from reconciler.embedded.segments.head import Partition
from reconciler.errors import IncompleteError, MissingSparkError, UsageError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.operations.steps.jobs import SparkJobs
from reconciler.operations.steps.mount_jobs import check_copy_equal
from reconciler.operations.steps.runner import Stop
from reconciler.operations.steps.workspace import find_excluded_clusters, split_pair
from reconciler.planning.actions import Estimate, RunJob
from reconciler.resources.address import Address
from reconciler.resources.workspace import SparkSpec
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.runtime.threads import Workers
from reconciler.state.journal import Journal
from reconciler.state.lease import Claim, acquire
from reconciler.state.lockfile import Owner
from tests.engines import here
from tests.state.samples import record

if TYPE_CHECKING:
    from reconciler.embedded.clients.topic_log import EmbeddedLog
    from tests.operations.conftest import Bench


class Clock(ThreadEffects):
    """Real effects under a clock that stands still until it is set."""

    at = 0.0

    def read_clock(self) -> float:
        return self.at


def test_a_request_to_stop_reaches_everything_under_way() -> None:
    stop, ended = Stop(), list[str]()
    assert not Stop().request()
    with stop.call_on_stop(lambda: ended.append("outer")), stop.call_on_stop(lambda: ended.append("inner")):
        assert stop.request()
    assert ended == ["outer", "inner"]
    assert stop.is_requested
    assert not stop.request()


def test_what_begins_after_a_request_to_stop_is_ended_at_once() -> None:
    stop, ended = Stop(), list[str]()
    stop.request()
    with stop.call_on_stop(lambda: ended.append("late")):
        assert ended == ["late"]


def test_waiting_ends_when_somebody_asks_to_stop() -> None:
    stop = Stop()
    asker = threading.Thread(target=stop.request)
    asker.start()
    assert stop.wait(60)
    asker.join()
    assert not Stop().wait(0)


@pytest.mark.parametrize(
    ("excludes", "left"),
    [
        ((), set()),
        (("*/east/*",), {"east"}),
        (("*",), {"east", "west"}),
        (("topic/east/*",), set()),
        (("topic/east/*", "namespace/east/*", "link/*", "mirror/*", "mounting/*"), {"east"}),
        (("*/east/shop:*",), set()),
        (("*/e*/*", "*/west/*"), {"east", "west"}),
    ],
)
def test_a_cluster_is_left_out_where_nothing_on_it_is_wanted(excludes: tuple[str, ...], left: set[str]) -> None:
    assert find_excluded_clusters(["east", "west"], excludes) == left


@pytest.mark.parametrize("text", ["", "team", "=checkout"])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="-l"):
        split_pair("-l", text)
    assert split_pair("-l", "team=a=b") == ("team", "a=b")


@pytest.mark.parametrize(
    ("records", "serials"),
    [("abcde", [0, 1, 1, 1, 2]), ("aaaaa", [0, 1, 1, 1, 1]), ("aaaab", [0, 1, 1, 1, 2])],
    ids=["something is done all the time", "one job goes on for long", "it ends"],
)
def test_a_run_commits_once_a_minute_at_most_and_only_what_is_new(records: str, serials: list[int]) -> None:
    async def run() -> list[int]:
        effects = Clock()
        claim = Claim(owner=Owner("shop"), run="r1", who="anna", lineage="l1")
        found = []
        async with await acquire(MemoryStore(), effects, claim) as lease:
            turn = RunLease(lease, Journal(lease, effects, lease.run), effects)
            for at, name in zip((59.0, 60.0, 61.0, 119.0, 120.0), records, strict=True):
                effects.at = at
                await lease.renew()
                turn.check()
                assert turn.may_start
                await turn.checkpoint(record(name))
                found.append(lease.lockfile.serial)
        effects.close()
        return found

    assert asyncio.run(run()) == serials


def log_of(cluster: EmbeddedCluster, topic: str, *values: str) -> EmbeddedLog:
    cluster.create_topic(topic)
    with cluster.producer() as producer:
        for value in values:
            producer.send(topic, value, timestamp_ms=1)
    return cluster.log(topic)


def test_a_copy_that_differs_from_its_source_is_refused_and_one_that_is_behind_is_not() -> None:
    cluster = EmbeddedCluster.create(MemoryStore(), now_ms=lambda: 1, new_id=lambda: "x" * 36)
    ids = iter(f"{number:036}" for number in range(9))
    cluster = EmbeddedCluster.open(cluster.store, now_ms=lambda: 1, new_id=lambda: next(ids))
    source = log_of(cluster, "source", "a", "b", "c")
    check_copy_equal("mirror:x", source, log_of(cluster, "same", "a", "b", "c"), here())
    check_copy_equal("mirror:x", source, log_of(cluster, "behind", "a", "b"), here())
    with pytest.raises(UserError, match="mirror:x: the copy differs from its source in partitions 0"):
        check_copy_equal("mirror:x", source, log_of(cluster, "other", "a", "x", "c"), here())


@pytest.mark.parametrize(
    ("spark", "stored", "needs_java"),
    [({}, 0, False), ({}, 64 << 20, True), ({"inProcessBelow": 10}, 9, False), ({"engine": "spark"}, 0, True)],
)
def test_only_a_plan_with_a_job_on_spark_needs_java(
    bench: Bench, spark: dict[str, Any], stored: int, *, needs_java: bool
) -> None:
    nothing = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
    jobs = SparkJobs({}, SparkSpec.model_validate(spark), replace(bench.invocation, environ=nothing))
    jobs.check([])
    job = RunJob(
        address=Address("mirror/east/a"),
        job="mirror",
        source=Address("topic/west/a"),
        sink=Address("mirror/east/a"),
        estimate=Estimate(bytes=stored),
    )
    with pytest.raises(MissingSparkError, match="Java") if needs_java else nullcontext():
        jobs.check([job])


def test_upkeep_without_pyspark_says_what_to_install(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for loaded in ["pyspark", *(name for name in sys.modules if name.startswith("pyspark."))]:
        monkeypatch.setitem(sys.modules, loaded, None)
    monkeypatch.delitem(sys.modules, "reconciler.jobs.compaction", raising=False)
    jobs = SparkJobs({}, SparkSpec(engine="spark"), bench.invocation)
    with pytest.raises(MissingSparkError, match="PySpark is not installed") as refused:
        list(jobs.run_distributed([Chore(Partition("orders", "x", 0), 1)], list))
    assert refused.value.hint.startswith("Install it: pip install")


def test_all_that_wait_for_spark_hear_that_they_were_stopped(bench: Bench) -> None:
    jobs = SparkJobs({}, SparkSpec(), bench.invocation)
    jobs.stop()
    threads = Workers(4, name="waiting")
    for each in [threads.submit(jobs.get_session) for _ in range(4)]:
        assert isinstance(each.exception(timeout=30), IncompleteError)
    threads.close()
