"""A run that leaves its jobs to another stays open; whoever looks is told, and the next one finishes it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, ActionStarted, Recovered
from reconciler.errors import UsageError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.clusters.topics import alter_topic
from reconciler.operations.show import show
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.approval import ChangedPlanError
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Stop
from reconciler.operations.steps.workspace import open_work
from reconciler.planning.same_or_less import Why
from reconciler.state.lockfile import read_lockfile
from tests.embedded.crashing import opened

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.applying.events import Event
    from reconciler.state.lockfile import Lockfile

NO_JAVA = {"PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}
LEAVING = ApplyOptions(yes=True, leaves_jobs=True)
RESUMING = ApplyOptions(resumes=True)
LINK = """\
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


@pytest.fixture
def linked(bench: Bench) -> Bench:
    """A topic and a mirror of it, which only a job can fill; there is no Java."""
    bench.write("manifests/east.yaml", LINK)
    return bench.with_(environ=NO_JAVA)


def lockfile(bench: Bench) -> Lockfile:
    found = read_lockfile(open_work(bench.invocation, Select()).state)
    assert found is not None
    return found.lockfile


def test_leaving_the_jobs_does_the_rest_without_spark_and_ends_well(linked: Bench) -> None:
    done = linked.apply(options=LEAVING)
    assert done.verdict is None
    assert done.result is not None
    assert done.result.not_started == ("mirror:mirror/east/shop:orders",)
    assert "create:mirror/east/shop:orders" in done.result.done
    left = lockfile(linked)
    assert (left.lease.status, left.open_run is None) == ("free", False)
    (result,) = (linked.folder / ".reconciler/runs").glob("*/result.json")
    assert json.loads(result.read_bytes())["status"] == "detached"


def test_who_plans_or_looks_while_a_run_is_open_is_told_whose_it_is_and_what_is_left(linked: Bench) -> None:
    linked.apply(options=LEAVING)
    opened = lockfile(linked).open_run
    assert opened is not None
    for look in (linked.plan, lambda: show(linked.invocation, Select(), None)):
        linked.warned.clear()
        look()
        (line,) = linked.warned
        assert f"run {opened.run} of anna@build-7, begun 20" in line
        assert "left what follows to others: 1 action not begun. " in line
        assert "apply --resume" in line


def test_who_plans_while_a_run_is_under_way_is_told_what_it_does(linked: Bench) -> None:
    def look(_event: object) -> None:
        linked.warned.clear()
        linked.plan()
        told.extend(linked.warned)

    told: list[str] = []
    linked.apply(options=LEAVING, report=look)
    assert any("anna@build-7 holds the lease since" in line and ": apply, " in line for line in told), told


def test_nothing_is_read_for_a_run_that_is_not_open(applied: Bench) -> None:
    applied.plan()
    assert applied.warned == []


def test_the_next_plain_apply_closes_what_was_left_and_leaves_it_again_where_asked(linked: Bench) -> None:
    linked.apply(options=LEAVING)
    first = lockfile(linked).open_run
    again = linked.apply(options=LEAVING)
    assert again.result is not None
    assert again.result.not_started == ("mirror:mirror/east/shop:orders",)
    second = lockfile(linked).open_run
    assert first is not None
    assert second is not None
    assert first.run != second.run
    assert [event.run for event in linked.events if isinstance(event, Recovered)] == [first.run]


def test_resuming_where_nothing_is_open_says_so(applied: Bench) -> None:
    with pytest.raises(UserError, match="nothing to resume: no run is open"):
        applied.apply(options=RESUMING)
    assert lockfile(applied).lease.status == "free"


def test_resuming_takes_neither_a_file_nor_a_selection(applied: Bench) -> None:
    with pytest.raises(UsageError, match="its own plan"):
        applied.apply(options=replace(RESUMING, file=applied.folder / "plan.json"))
    with pytest.raises(UsageError, match="its own plan"):
        applied.apply(Select(targets=("topic/west/*",)), RESUMING)
    with pytest.raises(UsageError, match="its own plan"):
        applied.apply(options=replace(RESUMING, only_drift=True))


def test_what_is_left_and_planned_no_more_is_not_dropped_in_silence(linked: Bench) -> None:
    linked.apply(options=LEAVING)
    opened = lockfile(linked).open_run
    manifest = linked.folder / "manifests/east.yaml"
    manifest.write_text(manifest.read_text().partition("  mirrorTopics")[0])
    with pytest.raises(ChangedPlanError, match="mirror:mirror/east/shop:orders: it was left to do") as caught:
        linked.apply(options=RESUMING)
    assert (caught.value.exit_code, "git pull" in caught.value.hint) == (6, True)
    assert [each.whys for each in caught.value.held.difference.more] == [(Why.MISSING,)]
    left = lockfile(linked)
    assert (left.lease.status, left.open_run) == ("free", opened)


def stopped_before(bench: Bench, manifests: str) -> None:
    """Stop a run when it is about to do what `manifests` add."""
    bench.apply()
    bench.write("manifests/more.yaml", manifests)
    bench.apply(report=lambda event: bench.stop.request() if isinstance(event, ActionDone) else None)
    bench.stop = Stop()


LATER = """\
---
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: later, cluster: west}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: a, namespace: later, cluster: west}
spec: {partitions: 2, configs: {retention.ms: 1d}}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: b, namespace: later, cluster: west}
spec: {partitions: 2}
"""
A, B = "create:topic/west/later:a", "create:topic/west/later:b"


def test_files_that_know_less_than_the_run_had_planned_are_refused_with_all_they_lack(bench: Bench) -> None:
    stopped_before(bench, LATER)
    path = bench.folder / "manifests/more.yaml"
    text = path.read_text()
    path.write_text("---".join(text.split("---")[:2]))
    with pytest.raises(ChangedPlanError, match="2 actions are not what") as caught:
        bench.apply(options=RESUMING)
    more = caught.value.held.difference.more
    assert [each.id for each in more] == [A, B]
    assert {field.path for field in more[0].fields} == {"partitions", "configs.retention.ms"}
    path.write_text(text)
    assert bench.apply(options=RESUMING).verdict is None
    assert bench.plan().plan.is_empty


def test_a_run_that_was_stopped_is_not_told_as_one_that_crashed(bench: Bench) -> None:
    stopped_before(bench, LATER)
    bench.plan()
    (line,) = bench.warned
    assert "was stopped: 2 actions not begun. " in line
    assert "in doubt" not in line
    bench.events.clear()
    bench.apply()
    (settled,) = [event for event in bench.events if isinstance(event, Recovered)]
    assert (settled.parting, settled.left, settled.settled) == ("stopped", 2, {})


def test_a_command_that_acted_at_once_and_died_is_settled_and_given_again_never_resumed(applied: Bench) -> None:
    def cut(event: Event) -> None:
        if isinstance(event, ActionStarted):
            shutil.copytree(applied.folder / ".reconciler", kept)

    kept = applied.folder / "kept"
    alter_topic(
        replace(applied.acting("topic alter"), report=cut), "topic/west/shop:orders", {"retention.ms": "2d"}, ()
    )
    shutil.rmtree(applied.folder / ".reconciler")
    kept.rename(applied.folder / ".reconciler")
    dead = lockfile(applied).lease.run
    state_unlock(applied.invocation, Select(), dead, confirm=lambda _line: True, stop=applied.stop)
    applied.warned.clear()
    applied.plan()
    (line,) = [line for line in applied.warned if "`reconciler apply` settles it; then" in line]
    assert "`topic alter` can be given again" in line
    assert "--resume" not in line


def test_every_field_that_would_be_otherwise_is_told_of_all_that_changed(bench: Bench) -> None:
    stopped_before(bench, LATER)
    path = bench.folder / "manifests/more.yaml"
    path.write_text(path.read_text().replace("partitions: 2", "partitions: 4"))
    with pytest.raises(ChangedPlanError) as caught:
        bench.apply(options=RESUMING)
    more = caught.value.held.difference.more
    assert [(each.id, each.whys, [field.path for field in each.fields]) for each in more] == [
        (A, (Why.RESULT,), ["partitions"]),
        (B, (Why.RESULT,), ["partitions"]),
    ]


def test_what_somebody_did_meanwhile_is_less_and_told(bench: Bench) -> None:
    stopped_before(bench, LATER)
    cluster = opened(DirectoryStore(bench.folder / ".clusters/west"))
    cluster.create_topic("later:a", partitions=2, configs={"retention.ms": "86400000"})
    resumed = bench.apply(options=RESUMING)
    assert resumed.verdict is None
    assert (resumed.skipped, [action.id for action in resumed.planned.plan.actions]) == ((A,), [B])
    assert lockfile(bench).open_run is None
