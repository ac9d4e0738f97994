"""A run that is killed leaves nothing that the next one cannot finish."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, Event, RunRecovered, Summary
from reconciler.errors import IncompleteError, LeaseError, StalePlanError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.state_edit import state_unlock
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Stop
from reconciler.operations.steps.workspace import open_work
from reconciler.runtime.thread_effects import ThreadEffects
from reconciler.state.lockfile import Lockfile, read_lockfile
from reconciler.state.snapshots import list_snapshots, read_snapshot
from tests.embedded.deaths import cluster_in, opened
from tests.processes import ran

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.resources.inventory import Record


# The dying process is a real one: it is killed in the middle of a callback, with its lease held.
DYING = """
import os, signal, sys, time, uuid
from pathlib import Path
from reconciler.operations.apply import ApplyOptions, Hooks, apply
from reconciler.operations.steps.invocation import Invocation, Select
from reconciler.operations.steps.runner import Stop

def die(event):
    if type(event).__name__ == sys.argv[2] and getattr(event, "id", "") == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)

here = Invocation(cwd=Path(sys.argv[1]), environ={}, now_ms=lambda: time.time_ns() // 10**6,
    new_id=lambda: str(uuid.uuid4()), new_run=lambda: "the-dead-run", tool="0.1.0", who="bob@laptop")
apply(here, Select(allow=tuple(sys.argv[4:])), ApplyOptions(yes=True), Hooks(lambda _: True, die, Stop()))
"""


def die_at(bench: Bench, event: str, action: str = "", *allow: str) -> None:
    done = ran(DYING, str(bench.folder), event, action, *allow)
    assert done.returncode == -9, done.stderr


def unlock(bench: Bench) -> None:
    freed = state_unlock(bench.invocation, Select(), "the-dead-run", confirm=lambda _line: True, stop=bench.stop)
    assert (freed.was_free, freed.run, freed.who) == (False, "the-dead-run", "bob@laptop")


MORE = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: more, namespace: shop, cluster: west}
spec: {partitions: 1}
"""
CLUSTER, NAMESPACE, TOPIC = "create:cluster/west", "create:namespace/west/shop", "create:topic/west/shop:orders"


def lockfile_of(bench: Bench) -> Lockfile:
    found = read_lockfile(DirectoryStore(bench.folder / ".reconciler"))
    assert found is not None
    return found.lockfile


def recorded_in(bench: Bench) -> Record:
    snapshot = read_snapshot(DirectoryStore(bench.folder / ".reconciler"))
    assert snapshot is not None
    return snapshot.record


def create_topic(bench: Bench) -> None:
    """Do what the killed run was about to do, as a call of it may that was under way."""
    cluster = opened(DirectoryStore(bench.folder / ".clusters/west"))
    cluster.create_topic("shop:orders", partitions=3, configs={"retention.ms": "604800000"})


@pytest.mark.parametrize(
    ("event", "action", "left"),
    [
        ("PlanMade", "", ["adopt:cluster/west", NAMESPACE, TOPIC]),  # it was made with who owns what on it
        ("ActionStarted", CLUSTER, [NAMESPACE, TOPIC]),
        ("ActionDone", CLUSTER, [NAMESPACE, TOPIC]),
        ("ActionStarted", TOPIC, [TOPIC]),
        ("ActionDone", TOPIC, []),
    ],
)
def test_what_a_killed_run_made_is_known_and_owned_and_the_rest_is_made(
    bench: Bench, event: str, action: str, left: list[str]
) -> None:
    die_at(bench, event, action)
    with pytest.raises(LeaseError, match=r"bob@laptop.*dead-run"):
        bench.apply(options=ApplyOptions(yes=True, lock_timeout_s=0))
    unlock(bench)
    assert [action.id for action in bench.plan().plan.actions] == left
    applied = bench.apply()
    assert applied.verdict is None
    assert [action.id for action in applied.planned.plan.actions] == left
    assert bench.plan().plan.is_empty
    adopted = [address for address, recorded in recorded_in(bench).items() if recorded.ownership != "created"]
    assert adopted == [each.removeprefix("adopt:") for each in left if each.startswith("adopt:")]
    assert lockfile_of(bench).open_run is None


@pytest.mark.parametrize("action", ["delete:topic/west/shop:orders", "create:topic/west/shop:more"])
def test_what_a_killed_run_left_in_doubt_is_not_judged_while_its_cluster_is_not_there(
    applied: Bench, action: str
) -> None:
    if action.startswith("delete"):
        (applied.folder / "manifests/orders.yaml").unlink()
    else:
        applied.write("manifests/more.yaml", MORE)
    die_at(applied, "ActionStarted", action, action)
    unlock(applied)
    place, away = applied.folder / ".clusters/west", applied.folder / "unmounted"
    place.rename(away)
    with pytest.raises(IncompleteError, match=r"cluster west cannot be read: .*its location is empty"):
        applied.apply(options=ApplyOptions(yes=True))
    assert "topic/west/shop:orders" in recorded_in(applied)
    assert lockfile_of(applied).open_run is not None
    away.rename(place)
    assert applied.apply(Select(allow=(action,))).verdict is None
    assert applied.plan().plan.is_empty


@pytest.mark.parametrize("event", ["ActionStarted", "ActionDone"])
def test_a_killed_run_is_resumed_by_whoever_comes_next(bench: Bench, event: str) -> None:
    die_at(bench, event, NAMESPACE)
    unlock(bench)
    bench.write("manifests/more.yaml", MORE)
    resumed = bench.apply(options=ApplyOptions(resumes=True))
    assert resumed.verdict is None
    assert resumed.planned.plan.actions[-1].id == TOPIC
    assert [action.id for action in bench.plan().plan.actions] == ["create:topic/west/shop:more"]
    with pytest.raises(UserError, match="nothing to resume"):
        bench.apply(options=ApplyOptions(resumes=True))


@pytest.mark.parametrize(
    ("spec", "unwanted"),
    [
        ("{partitions: 3, configs: {retention.ms: 14d}}", "update:topic/west/shop:orders"),
        ("", "delete:topic/west/shop:orders"),  # a guard blocks it
    ],
)
def test_resuming_looks_again_and_does_nothing_that_the_open_run_had_not_planned(
    bench: Bench, spec: str, unwanted: str
) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    create_topic(bench)
    path = bench.folder / "manifests/orders.yaml"
    path.write_text(f"{path.read_text().partition('{partitions')[0]}{spec}" if spec else "")
    assert [action.id for action in bench.plan().plan.actions] == [unwanted]
    resumed = bench.apply(options=ApplyOptions(resumes=True))
    assert (resumed.verdict, resumed.planned.plan.actions) == (None, ())
    assert not [event for event in bench.events if isinstance(event, ActionDone)]


def test_a_second_look_does_no_more_than_was_confirmed(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    create_topic(bench)
    unlock(bench)
    bench.write("manifests/more.yaml", MORE)

    altered: list[Event] = []

    def alter(event: Event) -> None:
        if isinstance(event, Summary) and not altered:
            altered.append(event)
            opened(DirectoryStore(bench.folder / ".clusters/west")).alter_topic(
                "shop:orders", configs={"retention.ms": "1000"}
            )

    assert bench.apply(options=ApplyOptions(yes=False), report=alter).verdict is None
    assert [action.id for action in bench.plan().plan.actions] == ["update:topic/west/shop:orders"]


def test_what_comes_up_once_a_killed_run_is_settled_is_asked_for_where_the_plan_was_empty(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    create_topic(bench)
    unlock(bench)

    def alter(event: Event) -> None:
        if isinstance(event, RunRecovered):
            opened(DirectoryStore(bench.folder / ".clusters/west")).alter_topic(
                "shop:orders", configs={"retention.ms": "1"}
            )

    with pytest.raises(UserError, match="not confirmed: nothing was done"):
        bench.apply(options=ApplyOptions(yes=False), confirm=lambda _planned: False, report=alter)
    assert [action.id for action in bench.plan().plan.actions] == ["update:topic/west/shop:orders"]


def test_what_changed_since_a_run_died_is_not_resumed(bench: Bench) -> None:
    die_at(bench, "ActionDone", NAMESPACE)
    unlock(bench)
    path = bench.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("partitions: 3", "partitions: 4"))
    with pytest.raises(StalePlanError, match=f"1 action is not what the open run dead-run had planned:\n{TOPIC}"):
        bench.apply(options=ApplyOptions(resumes=True))
    assert lockfile_of(bench).open_run is not None
    assert bench.apply().verdict is None
    assert lockfile_of(bench).open_run is None


def test_what_is_in_doubt_is_settled_also_where_it_is_left_out_of_the_plan_but_its_cluster_is_read(
    bench: Bench,
) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    create_topic(bench)
    assert bench.apply(Select(excludes=("topic/west/shop:orders",))).verdict is None
    assert recorded_in(bench)["topic/west/shop:orders"].ownership == "created"


def test_an_empty_plan_still_settles_what_a_killed_run_left(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    create_topic(bench)
    assert bench.plan().plan.is_empty
    assert bench.apply(options=ApplyOptions(), confirm=pytest.fail).verdict is None
    assert lockfile_of(bench).open_run is None
    assert recorded_in(bench)["topic/west/shop:orders"].ownership == "created"


def test_a_run_that_died_after_its_commit_leaves_nothing_to_do(bench: Bench) -> None:
    die_at(bench, "Summary")
    found = read_lockfile(DirectoryStore(bench.folder / ".reconciler"))
    assert found is not None
    assert (found.lockfile.lease.status, found.lockfile.serial) == ("free", 1)
    assert bench.plan().plan.is_empty


def test_a_plan_reads_beside_a_dead_run(bench: Bench) -> None:
    die_at(bench, "ActionDone", "create:cluster/west")
    assert [action.id for action in bench.plan().plan.actions] == [NAMESPACE, TOPIC]
    (said,) = bench.warned
    assert "bob@laptop holds the lease" in said


def test_unlocking_what_is_free_asks_nobody(applied: Bench) -> None:
    freed = state_unlock(applied.invocation, Select(), None, confirm=pytest.fail, stop=applied.stop)
    assert freed.was_free


def test_unlocking_another_run_than_the_one_that_holds_it_is_refused(bench: Bench) -> None:
    die_at(bench, "ActionDone", "create:cluster/west")
    with pytest.raises(LeaseError, match="dead-run"):
        state_unlock(bench.invocation, Select(), "another-run", confirm=lambda _line: True, stop=bench.stop)


# A wall clock set back by a day in the middle: people read odd times, and everything else goes on.


DAY = timedelta(days=1)


def stopped(bench: Bench) -> None:
    """Apply, and ask for the end as soon as something is done."""

    def ask(event: Event) -> None:
        if isinstance(event, ActionDone):
            bench.stop.request()

    assert isinstance(bench.apply(report=ask).verdict, IncompleteError)


def a_day_before(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return the same workspace where every wall clock shows yesterday."""
    day_ms = round(DAY.total_seconds() * 1000)
    now_ms = bench.invocation.now_ms
    monkeypatch.setattr(ThreadEffects, "read_utc_time", lambda _: datetime.now(UTC) - DAY)
    return replace(bench.with_(now_ms=lambda: now_ms() - day_ms), events=[], stop=Stop())


@pytest.mark.parametrize("resumes", [False, True])
def test_a_run_is_finished_by_one_that_lives_a_day_before_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, *, resumes: bool
) -> None:
    stopped(bench)
    state = open_work(bench.invocation, Select()).state
    before = read_lockfile(state)
    assert before is not None
    assert before.lockfile.open_run is not None

    yesterday = a_day_before(bench, monkeypatch)
    assert yesterday.apply(options=ApplyOptions(yes=True, resumes=resumes)).verdict is None
    assert [event.run for event in yesterday.events if isinstance(event, RunRecovered)] == [
        before.lockfile.open_run.run
    ]
    assert yesterday.plan().plan.is_empty

    yesterday.write("manifests/more.yaml", MORE)
    assert yesterday.apply().verdict is None
    assert yesterday.plan().plan.is_empty
    after = read_lockfile(state)
    assert after is not None
    assert after.lockfile.open_run is None
    assert after.lockfile.lease.epoch > before.lockfile.lease.epoch
    serials = [row.serial for row in list_snapshots(state)]
    assert serials == sorted(serials, reverse=True)
    assert after.lockfile.serial == serials[0] > before.lockfile.serial


def test_a_killed_run_is_not_settled_by_what_another_cluster_says(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    before, folder = lockfile_of(bench), bench.folder / ".clusters/west"
    folder.rename(folder.with_name("ours"))
    other = cluster_in(DirectoryStore(folder)).cluster_id
    with pytest.raises(UserError, match=rf"cluster west should be .*, but {other} answers"):
        bench.apply()
    assert lockfile_of(bench).open_run == before.open_run
