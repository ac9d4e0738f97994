from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone, ActionStarted, Event, PlanMade, ResultMissing, Summary
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.errors import (
    BlockedError,
    InterruptedRunError,
    LeaseError,
    PartialError,
    StalePlanError,
    UsageError,
    UserError,
)
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.clusters.topics import alter_topic
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import Emergency
from reconciler.state.journal import read_journal
from reconciler.state.lockfile import read_lockfile

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.plan import Planned
    from reconciler.planning.plan import Plan

ASK = ApplyOptions()
FILE = ApplyOptions(file=Path("p.json"))
MORE = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: refunds, namespace: shop, cluster: west}
spec: {partitions: 1}
"""


def ids(plan: Plan) -> list[str]:
    return [action.id for action in plan.actions]


def state_of(bench: Bench) -> DirectoryStore:
    return DirectoryStore(bench.folder / ".reconciler")


def alter_behind_our_back(bench: Bench, **configs: str) -> None:
    emergency = Emergency(
        invocation=bench.invocation,
        select=Select(),
        command="topic alter",
        no_state=True,
        state_url=None,
        lock_timeout_s=0,
        report=bench.events.append,
        stop=bench.stop,
    )
    set_ = {key.replace("_", "."): value for key, value in configs.items()}
    alter_topic(emergency, "topic/west/shop:orders", set_, ())


def test_a_run_leaves_what_it_set_out_to_do_and_how_it_ended(applied: Bench) -> None:
    runs = list((applied.folder / ".reconciler/runs").iterdir())
    run, result = (json.loads((runs[0] / name).read_text()) for name in ("run.json", "result.json"))
    wanted = ["create:cluster/west", "create:namespace/west/shop", "create:topic/west/shop:orders"]
    assert [action["id"] for action in run["actions"]] == wanted
    assert (run["who"], run["base_serial"], run["options"]["wanted"]["is_destroy"]) == ("anna@build-7", 0, False)
    assert (result["status"], result["done"], result["serial"]) == ("done", wanted, 1)
    # One after the other: each leans on the one before, so its intent waits for the other's end.
    written = read_journal(state_of(applied), run["run"])
    assert [(entry.type, getattr(entry, "id", "")) for entry in written.entries] == [
        *((kind, name) for name in wanted for kind in ("intent", "done")),
        ("closed", ""),
    ]


def test_events_begin_with_the_plan_and_end_with_the_summary(applied: Bench) -> None:
    first, *between, last = applied.events
    assert isinstance(first, PlanMade)
    assert first.document["summary"]["create"] == 3
    assert [event.id for event in between if isinstance(event, ActionDone)] == first_ids(first)
    assert isinstance(last, Summary)
    assert (last.done, last.failed, last.serial) == (3, 0, 1)


def test_a_run_with_nothing_to_do_says_so_too(applied: Bench) -> None:
    applied.events.clear()
    assert applied.apply().result is None
    plan, summary = applied.events
    assert isinstance(plan, PlanMade)
    assert isinstance(summary, Summary)
    assert (summary.done, summary.failed, summary.not_started, summary.serial) == (0, 0, 0, 1)


def first_ids(event: PlanMade) -> list[str]:
    return [action["id"] for action in event.document["actions"]]


def test_the_lease_is_free_afterwards_and_its_epoch_counts_on(applied: Bench) -> None:
    applied.write("manifests/refunds.yaml", MORE)
    applied.apply()
    found = read_lockfile(state_of(applied))
    assert found is not None
    assert (found.lockfile.lease.status, found.lockfile.lease.epoch, found.lockfile.serial) == ("free", 2, 2)


def test_nothing_to_do_asks_nothing_and_writes_no_state(applied: Bench) -> None:
    applied.asked.clear()
    again = applied.apply()
    assert (again.result, again.verdict, applied.asked) == (None, None, [])
    assert len(list((applied.folder / ".reconciler/state").iterdir())) == 1


def test_only_yes_confirms(bench: Bench) -> None:
    with pytest.raises(UserError, match="not confirmed"):
        bench.apply(options=ASK, confirm=lambda _planned: False)
    assert not (bench.folder / ".clusters").exists()
    assert not (bench.folder / ".reconciler").exists()


def test_a_confirmed_plan_is_asked_about_once_and_done(bench: Bench) -> None:
    assert bench.apply(options=ASK).verdict is None
    assert len(bench.asked) == 1
    assert bench.plan().plan.is_empty


def test_what_changed_while_somebody_was_asked_is_not_done(applied: Bench) -> None:
    applied.write(
        "manifests/orders.yaml", MORE.replace("refunds", "orders").replace("{partitions: 1}", "{partitions: 6}")
    )

    def confirm(_planned: Planned) -> bool:
        alter_behind_our_back(applied, retention_ms="3d")
        return True

    with pytest.raises(StalePlanError):
        applied.apply(options=ASK, confirm=confirm)
    assert "update:topic/west/shop:orders" in ids(applied.plan().plan)


def test_a_saved_plan_is_done_as_it_was_approved(bench: Bench) -> None:
    bench.plan(out=Path("p.json"))
    done = bench.apply(options=FILE)
    assert (done.verdict, done.skipped) == (None, ())
    assert bench.plan().plan.is_empty


def test_a_saved_plan_brings_its_options(bench: Bench) -> None:
    bench.write("manifests/refunds.yaml", MORE)
    bench.plan(Select(excludes=("*refunds",)), out=Path("p.json"))
    bench.apply(options=FILE)
    assert ids(bench.plan().plan) == ["create:topic/west/shop:refunds"]
    with pytest.raises(UsageError, match="FILE"):
        bench.apply(Select(targets=("*",)), FILE)


def test_what_a_saved_plan_no_longer_needs_is_skipped_and_said(bench: Bench) -> None:
    bench.plan(out=Path("p.json"))
    bench.apply()
    done = bench.apply(options=FILE)
    assert (done.result, done.verdict) == (None, None)
    assert done.skipped == (
        "create:cluster/west",
        "create:namespace/west/shop",
        "create:topic/west/shop:orders",
    )
    with pytest.raises(StalePlanError, match="--strict"):
        bench.apply(options=ApplyOptions(file=Path("p.json"), strict=True))


def test_a_topic_that_changed_between_plan_and_apply_stops_it(applied: Bench) -> None:
    applied.write("manifests/orders.yaml", (applied.folder / "manifests/orders.yaml").read_text().replace("7d", "9d"))
    applied.plan(out=Path("p.json"))
    alter_behind_our_back(applied, retention_ms="3d")
    with pytest.raises(StalePlanError, match=r"update:topic/west/shop:orders: .*changed on the cluster"):
        applied.apply(options=FILE)
    before = applied.plan().plan.actions[0]
    assert [(change.before, change.after) for change in before.changes] == [("259200000", "777600000")]  # type: ignore[union-attr]  # an Update


def test_what_a_saved_plan_does_not_hold_stops_it(bench: Bench) -> None:
    bench.plan(out=Path("p.json"))
    bench.write("manifests/refunds.yaml", MORE)
    with pytest.raises(StalePlanError, match="create:topic/west/shop:refunds"):
        bench.apply(options=FILE)
    assert not (bench.folder / ".clusters").exists()


def test_a_saved_plan_that_was_edited_by_hand_is_refused(bench: Bench) -> None:
    bench.plan(out=Path("p.json"))
    path = bench.folder / "p.json"
    path.write_text(path.read_text().replace('"partitions":3', '"partitions":30'))
    with pytest.raises(UserError, match="changed after it was written"):
        bench.apply(options=FILE)


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"format": "reconciler.plan/9"}', "\x00"])
def test_what_is_no_saved_plan_is_refused(bench: Bench, text: str) -> None:
    bench.write("p.json", text)
    with pytest.raises(UserError, match="not a saved plan"):
        bench.apply(options=FILE)


def test_a_saved_plan_of_another_version_is_refused(bench: Bench) -> None:
    bench.plan(out=Path("p.json"))
    with pytest.raises(UserError, match="version"):
        bench.with_(tool="0.2.0").apply(options=FILE)


def test_a_delete_is_blocked_until_it_is_allowed_by_name(applied: Bench) -> None:
    (applied.folder / "manifests/orders.yaml").unlink()
    with pytest.raises(BlockedError, match="delete:topic/west/shop:orders") as caught:
        applied.apply()
    assert "--allow delete:topic/west/shop:orders" in caught.value.hint
    assert caught.value.planned.plan.blocked  # type: ignore[attr-defined]  # a BlockedPlanError
    assert not applied.plan(Select(allow=("delete:topic/west/shop:orders",))).plan.blocked

    done = applied.apply(Select(allow=("delete:topic/west/shop:orders",)))
    assert done.verdict is None
    assert applied.plan().plan.is_empty


def test_errors_of_a_plan_are_all_listed_and_nothing_is_done(applied: Bench) -> None:
    applied.write("manifests/refunds.yaml", MORE.replace("shop,", "nowhere,"))
    applied.write("manifests/wide.yaml", MORE.replace("shop,", "elsewhere,"))
    with pytest.raises(UserError, match="2 errors") as caught:
        applied.apply()
    assert "nowhere" in caught.value.message
    assert "elsewhere" in caught.value.message


def test_a_second_apply_waits_for_the_first_and_gives_up_in_time(bench: Bench) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold(_planned: Planned) -> bool:
        entered.set()
        return leave.wait(30)

    first = threading.Thread(target=bench.apply, kwargs={"confirm": hold})
    first.start()
    try:
        assert entered.wait(30)
        with pytest.raises(LeaseError, match="anna@build-7"):
            bench.apply(options=ApplyOptions(yes=True, lock_timeout_s=1))
        assert any("the lease is held by anna@build-7" in line for line in bench.warned)
    finally:
        leave.set()
        first.join()
    assert bench.plan().plan.is_empty


def test_a_plan_takes_no_lease(bench: Bench) -> None:
    seen: list[Plan] = []

    def look(_planned: Planned) -> bool:
        seen.append(bench.plan().plan)
        return True

    bench.apply(confirm=look)
    assert len(seen[0].actions) == 3


def test_a_stop_before_anything_started_changes_nothing(bench: Bench) -> None:
    bench.stop.request()
    with pytest.raises(InterruptedRunError):
        bench.apply()
    assert not (bench.folder / ".clusters").exists()
    found = read_lockfile(state_of(bench))
    assert found is not None
    assert found.lockfile.lease.status == "free"


def test_a_stop_on_the_way_keeps_what_is_done_and_says_what_is_left(bench: Bench) -> None:
    def stop_after_the_cluster(event: object) -> None:
        if isinstance(event, ActionDone):
            bench.stop.request()

    stopped = bench.apply(report=stop_after_the_cluster)
    assert stopped.verdict is not None
    assert stopped.verdict.exit_code == 4
    assert stopped.result is not None
    assert stopped.result.done == ("create:cluster/west",)
    assert ids(bench.plan().plan) == ["create:namespace/west/shop", "create:topic/west/shop:orders"]


def test_a_failed_action_fails_only_what_leans_on_it(bench: Bench) -> None:
    def obstruct(_planned: Planned) -> bool:
        # Somebody makes the topic, and not as we would, after the plan was made.
        cluster = EmbeddedCluster.create(
            DirectoryStore(bench.folder / ".clusters/west"),
            now_ms=bench.invocation.now_ms,
            new_id=bench.invocation.new_id,
        )
        cluster.create_namespace("shop")
        cluster.create_topic("shop:orders", partitions=1)
        return True

    bench.write("manifests/refunds.yaml", MORE)
    done = bench.apply(confirm=obstruct)
    assert isinstance(done.verdict, PartialError)
    assert done.result is not None
    assert [failed.id for failed in done.result.failed] == ["create:topic/west/shop:orders"]
    assert "create:topic/west/shop:refunds" in done.result.done
    assert ids(bench.plan().plan) == ["adopt:topic/west/shop:orders", "update:topic/west/shop:orders"]


def test_a_summary_that_cannot_be_written_is_told_and_everything_else_is_as_it_would_be(bench: Bench) -> None:
    def report(event: Event) -> None:
        bench.events.append(event)
        if isinstance(event, ActionStarted):
            (run,) = (bench.folder / ".reconciler/runs").iterdir()
            (run / "result.json").write_text("somebody else's")

    applied = bench.apply(report=report)
    assert applied.verdict is None
    *_, summary, missing = bench.events
    assert isinstance(summary, Summary)
    assert isinstance(missing, ResultMissing)
    assert (summary.done, summary.serial, missing.serial) == (3, 1, 1)
    assert "result.json" in missing.error
    found = read_lockfile(state_of(bench))
    assert found is not None
    assert (found.lockfile.lease.status, found.lockfile.open_run, found.lockfile.serial) == ("free", None, 1)
    assert bench.plan().plan.is_empty
