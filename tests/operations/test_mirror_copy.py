"""A link, from its manifest to equal logs, and on as the source grows. Needs Java."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, JobExecution
from reconciler.errors import InterruptedRunError, MissingSparkError, PartialError, ReconcilerError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.clusters.consume import ProduceOptions, produce
from reconciler.operations.clusters.topics import describe_topic
from reconciler.operations.drift import drift
from reconciler.operations.run import run_once
from reconciler.operations.show import explain
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions, Stop
from reconciler.operations.verify import VerifyOptions, verify
from reconciler.planning.actions import RunJob
from reconciler.state.lockfile import read_lockfile
from tests.operations.stage import opened

if TYPE_CHECKING:
    from conftest import Bench

SOURCE = "topic/west/shop:orders"
MIRROR = "mirror/east/shop:orders"

NO_JAVA = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}

EAST = """\
apiVersion: reconciler/v1
kind: Cluster
metadata: {name: east}
spec:
  embedded: {root: "file://.clusters/east"}
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: shop, cluster: east}
---
apiVersion: reconciler/v1
kind: MirrorLink
metadata: {name: from-west, cluster: east}
spec:
  source: west
  mirrorTopics: [{source: "shop:orders"}]
"""


# Spark lives once in a process, and belongs to the command that started it.
CHILD = """
import os, sys, threading, time, uuid
from pathlib import Path
from reconciler.applying.events import ActionDone, ActionStarted, Progress
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.run import run_once
from reconciler.operations.steps.runner import SiteOptions, Stop

folder, command = sys.argv[1:]
stop = Stop()

def report(event):
    if isinstance(event, ActionDone | Progress):
        print(type(event).__name__, event.id, event.records, event.ran.engine, event.ran.spark_tasks)
    if command == "stopped-apply" and isinstance(event, ActionStarted) and event.id.startswith("mirror:"):
        threading.Timer(0.5, stop.request).start()

here = Invocation(cwd=Path(folder), environ=dict(os.environ), now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: str(uuid.uuid4()), tool="0.1.0", who="anna@build-7")
if command == "run":
    verdict = run_once(SiteOptions(invocation=here, select=Select()), report=report, stop=stop).verdict
else:
    done = apply(here, Select(), ApplyOptions(yes=True), Hooks(lambda _: True, report, stop))
    verdict = done.verdict
    for action in done.result.not_started:
        print("left", action)
if verdict is not None:
    print(verdict)
    sys.exit(verdict.exit_code)
"""


def in_a_process_of_its_own(bench: Bench, command: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(bench.folder), command], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def linked(applied: Bench) -> Bench:
    """A source, and a link to it that is declared and not applied."""
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("7d", "6d"))
    applied.apply()
    applied.write("manifests/east.yaml", EAST)
    return applied.with_(environ=dict(os.environ))


def upkeep(bench: Bench) -> list[tuple[str, int, ReconcilerError | None]]:
    done = run_once(
        SiteOptions(invocation=bench.invocation, select=Select()), report=bench.events.append, stop=bench.stop
    )
    assert isinstance(done.verdict, PartialError) == any(row.error for row in done.synced)
    return [(row.address, row.records, row.error) for row in done.synced]


def feed(bench: Bench, count: int, *, to: str = SOURCE) -> None:
    rows = "".join(json.dumps({"key": f"k{number % 50}", "value": number}) + "\n" for number in range(count))
    options = ProduceOptions(input_format="jsonl", key_field="key")
    told: list[int] = []
    produce(
        SiteOptions(invocation=bench.invocation, select=Select()),
        to,
        options,
        stdin=io.BytesIO(rows.encode()),
        report=lambda records, _bytes: told.append(records),
    )
    assert told[-1] == count


def differences(bench: Bench) -> set[str]:
    how = VerifyOptions(deep=False, report=bench.events.append, stop=Stop())
    found = verify(SiteOptions(invocation=bench.invocation, select=Select()), SOURCE, MIRROR, how)
    assert (found.verdict is None) == found.comparison.is_equal
    return {difference for part in found.comparison.partitions for difference in part.differences}


def test_a_comparison_that_is_stopped_says_so_and_that_nothing_was_changed(linked: Bench) -> None:
    feed(linked, 10)
    how = VerifyOptions(deep=True, report=linked.events.append, stop=Stop())
    how.stop.request()
    with pytest.raises(InterruptedRunError) as stopped:
        verify(SiteOptions(invocation=linked.invocation, select=Select()), SOURCE, SOURCE, how)
    assert stopped.value.hint == "Nothing was changed"


@pytest.mark.soak
@pytest.mark.spark
def test_a_link_brings_its_mirrors_to_the_source(linked: Bench) -> None:
    feed(linked, 1000)
    planned = linked.plan()
    assert [action.id for action in planned.plan.actions][-2:] == [f"create:{MIRROR}", f"mirror:{MIRROR}"]
    code, said = in_a_process_of_its_own(linked, "apply")
    assert code == 0, said
    assert f"Progress mirror:{MIRROR} 1000" in said
    assert f"ActionDone mirror:{MIRROR} 1000" in said
    assert differences(linked) == set()
    assert linked.plan().plan.is_empty


@pytest.mark.soak
@pytest.mark.spark
def test_mirrors_are_kept_at_the_end_of_their_source(linked: Bench) -> None:
    assert linked.apply().verdict is None
    # The source goes on: that the mirror is behind is upkeep, and neither planned nor drift.
    feed(linked, 500)
    assert linked.plan().plan.is_empty
    assert drift(linked.invocation, Select()).findings == ()
    assert differences(linked) == {"end"}
    code, said = in_a_process_of_its_own(linked, "run")
    assert code == 0, said
    assert f"ActionDone mirror:{MIRROR} 500" in said
    assert differences(linked) == set()


@pytest.mark.thorough
@pytest.mark.spark
def test_a_copy_that_is_stopped_while_spark_starts_is_left_for_the_next_run(linked: Bench) -> None:
    feed(linked, 10)
    code, said = in_a_process_of_its_own(with_spark(linked, "{engine: spark}"), "stopped-apply")
    assert code == 4, said
    assert f"left mirror:{MIRROR}" in said
    assert [action.id for action in linked.plan().plan.actions] == [f"mirror:{MIRROR}"]
    found = read_lockfile(DirectoryStore(linked.folder / ".reconciler"))
    assert found is not None
    assert found.lockfile.lease.status == "free"


def test_what_is_at_its_end_already_needs_no_spark(linked: Bench) -> None:
    assert linked.apply().verdict is None
    assert linked.plan().plan.is_empty
    assert upkeep(linked.with_(environ=NO_JAVA)) == [(MIRROR, 0, None)]


def test_a_mirror_takes_over_configs_and_takes_no_records_but_its_source_s(linked: Bench) -> None:
    linked.apply()
    rows = {
        row.key: row
        for row in describe_topic(SiteOptions(invocation=linked.invocation, select=Select()), MIRROR).configs
    }
    assert (rows["retention.ms"].value, rows["retention.ms"].origin) == ("518400000", "link/east/from-west")
    found = explain(linked.invocation, Select(), MIRROR)
    assert found.effective["retention.ms"] == "518400000"
    assert found.shown.source == "manifests/east.yaml:11"
    with pytest.raises(UserError, match="mirror"):
        feed(linked, 1, to=MIRROR)


# Where a job runs: in this process where it is small and the workspace allows that, else in Spark.


def with_spark(bench: Bench, spark: str) -> Bench:
    bench.write("reconciler.yaml", f"{(bench.folder / 'reconciler.yaml').read_text()}spec: {{spark: {spark}}}\n")
    return bench


def engine_planned(bench: Bench) -> str:
    (job,) = (action for action in bench.plan().plan.actions if isinstance(action, RunJob))
    return job.estimate.engine


@pytest.mark.parametrize("count", [0, 10])
def test_a_first_mirror_that_is_small_needs_no_java(linked: Bench, count: int) -> None:
    if count:
        feed(linked, count)
    assert engine_planned(linked) == "in process"
    assert linked.with_(environ=NO_JAVA).apply().verdict is None
    (copied,) = (each for each in linked.events if isinstance(each, ActionDone) and each.id == f"mirror:{MIRROR}")
    assert (copied.records, copied.ran) == (count, JobExecution("in process") if count else JobExecution())
    assert linked.events[-1].ran == copied.ran
    assert differences(linked) == set()


@pytest.mark.parametrize("spark", ["{engine: spark}", "{inProcessBelow: 0}", "{inProcessBelow: 1KiB}"])
def test_a_job_that_runs_on_spark_is_refused_without_java_before_anything_is_done(linked: Bench, spark: str) -> None:
    feed(linked, 200)
    without = with_spark(linked, spark).with_(environ=NO_JAVA)
    assert engine_planned(linked) == "Spark local[*]"
    linked.write("manifests/new.yaml", (linked.folder / "manifests/orders.yaml").read_text().replace("orders", "new"))
    with pytest.raises(MissingSparkError, match="Java") as caught:
        without.apply()
    assert caught.value.hint
    assert "topic/shop:new" not in opened(linked, "west").catalog.read().owners  # Nothing is taken, either.
    assert f"create:{MIRROR}" in [action.id for action in linked.plan().plan.actions]
    linked.write("manifests/refunds.yaml", (linked.folder / "manifests/orders.yaml").read_text().replace("orders", "r"))
    assert without.apply(Select(targets=("topic/west/shop:r",))).verdict is None


def test_with_engine_spark_a_mirror_of_an_empty_topic_needs_no_java(linked: Bench) -> None:
    assert with_spark(linked, "{engine: spark}").with_(environ=NO_JAVA).apply().verdict is None
    assert differences(linked) == set()


def test_a_copy_that_grew_since_it_was_approved_is_refused_without_java_before_it_begins(linked: Bench) -> None:
    with_spark(linked, "{inProcessBelow: 4KiB}")
    saved = linked.folder / "plan.json"
    linked.plan(out=saved)
    feed(linked, 2000)
    with pytest.raises(MissingSparkError, match="Java"):
        linked.with_(environ=NO_JAVA).apply(options=ApplyOptions(file=saved))


@pytest.mark.spark
@pytest.mark.thorough
def test_with_engine_spark_a_small_copy_is_a_spark_stage(linked: Bench) -> None:
    feed(linked, 10)
    code, said = in_a_process_of_its_own(with_spark(linked, '{engine: spark, master: "local[2]"}'), "apply")
    assert code == 0, said
    assert f"ActionDone mirror:{MIRROR} 10 Spark local[2] 1" in said
    assert differences(linked) == set()


def test_a_little_is_copied_without_java(linked: Bench) -> None:
    linked.apply()
    feed(linked, 10)
    assert upkeep(linked.with_(environ=NO_JAVA)) == [(MIRROR, 10, None)]
    assert differences(linked) == set()


def test_upkeep_without_java_says_which_mirrors_stay_behind(linked: Bench) -> None:
    linked.apply()
    feed(linked, 10)
    without = with_spark(linked, "{engine: spark}").with_(environ=NO_JAVA)
    ((address, records, error),) = upkeep(without)
    assert (address, records) == (MIRROR, 0)
    assert error is not None
    assert "Java" in error.message


def test_upkeep_without_mirrors_starts_no_spark(applied: Bench) -> None:
    without = applied.with_(environ=NO_JAVA)
    assert upkeep(without) == []


def test_logs_of_different_topics_differ(applied: Bench) -> None:
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text() + "---\n" + path.read_text().replace("orders", "refunds").replace("3", "2"))
    applied.apply()
    feed(applied, 10)
    how = VerifyOptions(deep=False, report=applied.events.append, stop=Stop())
    found = verify(SiteOptions(invocation=applied.invocation, select=Select()), SOURCE, "topic/west/shop:refunds", how)
    assert isinstance(found.verdict, UserError)
    assert "partition 2 (partition" in found.verdict.message
