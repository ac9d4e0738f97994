"""What came of a run is read at a glance, be it three actions or two thousand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import jsonschema
import orjson
import pytest

from reconciler.applying.engine import RunResult
from reconciler.applying.events import (
    ActionDone,
    ActionFailed,
    ActionStarted,
    Approval,
    Event,
    JobExecution,
    LeaseLost,
    PlanMade,
    Progress,
    ResultMissing,
    RunHandedOver,
    RunRecovered,
    Summary,
    group_failures,
)
from reconciler.cli.json.runs_json import PIPELINE, format_error_event, format_event
from reconciler.cli.progress import FinishedRun, LinePrinter, open_reporter
from reconciler.cli.text.inventory_text import format_planned_action
from reconciler.cli.text.lines import to_plain_text
from reconciler.cli.text.markdown import format_plan_comment
from reconciler.cli.text.plan_text import format_plan
from reconciler.cli.text.remarks import list_plan_remarks
from reconciler.cli.text.runs_text import (
    FailureFormatter,
    format_pass,
    format_recovery,
    format_run_result,
    format_upkeep,
    format_verification,
)
from reconciler.cli.text.states_text import format_unlock
from reconciler.embedded.check.sweep import SweptPartition
from reconciler.errors import IncompleteError, PartialError, RetryableError, UserError
from reconciler.jobs.comparison import Comparison
from reconciler.operations.mirrors.mirror_rounds import JobOutcome, PassResult
from reconciler.operations.plan import choose_verdict
from reconciler.operations.steps.approval import ApprovalCheck, ChangedPlanError
from reconciler.operations.steps.invocation import combine_errors
from reconciler.operations.verify import TopicComparison
from reconciler.planning.actions import Action, Create, Estimate, Forget, Reason
from reconciler.planning.plan import Plan, PlanFinding, UnfinishedTransition
from reconciler.planning.plan_rows import compute_digest, format_totals
from reconciler.planning.same_or_less import Losses, LossKind, SameOrLess, Why, describe_missing
from reconciler.planning.saved_plan import encode_saved_plan, read_plan_to_show
from reconciler.providers.protocol import FailedAction, MaintenanceJobResult
from reconciler.resources.address import Address
from reconciler.resources.mirrors import ForeignRecords
from reconciler.resources.mount import Mounting
from reconciler.resources.topic import Topic
from reconciler.state.journal import ActionSkipped, StateAdvance
from reconciler.state.repair import UnlockResult, UnsettledWork
from tests.cli.sample_results import empty
from tests.cli.sample_results import mount_actions as actions
from tests.cli.sample_workspaces import SCHEMAS

if TYPE_CHECKING:
    from reconciler.operations.apply import ApplyOutcome


MANY = 2_000


def create(name: str) -> Create:
    after = Topic.model_validate({"metadata": {"name": name, "cluster": "west"}, "spec": {"partitions": 1}})
    return Create(address=after.address, after=after)


def ids(*names: str) -> tuple[str, ...]:
    return tuple(f"create:topic/west/{name}" for name in names)


def text(result: RunResult, actions: Sequence[Action] = (), *, with_failures: bool = True, **more: object) -> str:
    applied = SimpleNamespace(
        planned=SimpleNamespace(plan=SimpleNamespace(actions=tuple(actions))),
        result=result,
        **{"skipped": (), "advance": None, **more},
    )
    summary = Summary("run-1", len(result.done), len(result.failed), 0, 0, seconds=12.3, serial=5)
    return to_plain_text(format_run_result(cast("ApplyOutcome", applied), summary, with_failures=with_failures))


def taken(name: str) -> FailedAction:
    return FailedAction(*ids(name), UserError(f"topic {name} is taken", hint="Choose another."))


def large() -> tuple[RunResult, list[Action]]:
    """Two thousand actions: most are done, many fail alike, and much is skipped for it."""
    names = [f"t{n:04}" for n in range(MANY)]
    bad, lost = names[:400], names[400:1000]
    result = RunResult(
        {},
        done=ids(*names[1001:]),
        failed=(*map(taken, bad), FailedAction(*ids(names[1000]), UserError("quota reached", hint="Ask for more."))),
        skipped=tuple(
            ActionSkipped(id=ids(name)[0], because=ids(*bad)[position % 2]) for position, name in enumerate(lost)
        ),
    )
    return result, [create(name) for name in names]


def test_counts_come_first_then_each_reason_once_then_each_cause_once() -> None:
    assert text(*large()) == (
        "Done: 999 added · 401 failed · 600 skipped · state #5 · in 12.3 s\n"
        "✗ 400 × topic … is taken. Choose another.\n"
        "    create:topic/west/t0000, create:topic/west/t0001, create:topic/west/t0002 and 397 more\n"
        "✗ create:topic/west/t1000: quota reached. Ask for more.\n"
        "- 300 skipped, they need create:topic/west/t0000\n"
        "    create:topic/west/t0400, create:topic/west/t0402, create:topic/west/t0404 and 297 more\n"
        "- 300 skipped, they need create:topic/west/t0001\n"
        "    create:topic/west/t0401, create:topic/west/t0403, create:topic/west/t0405 and 297 more\n"
    )


def test_two_thousand_different_reasons_still_fit_a_screen() -> None:
    failed = tuple(FailedAction(*ids(f"t{n}"), UserError(f"reason {n}", hint="Look.")) for n in range(MANY))
    skipped = tuple(ActionSkipped(id=ids(f"s{n}")[0], because=f"create:topic/west/t{n}") for n in range(MANY))
    told = text(RunResult({}, failed=failed, skipped=skipped)).splitlines()
    assert len(told) == 1 + 21 + 21
    assert told[0] == "Done: nothing · 2,000 failed · 2,000 skipped · state #5 · in 12.3 s"
    assert told[21] == "  failed for 1,980 more reasons: see result.json of the run"


def test_what_was_told_when_it_happened_is_not_told_twice_but_what_was_only_counted_is() -> None:
    few = RunResult({}, failed=tuple(map(taken, "abcde")))
    many = RunResult({}, failed=tuple(map(taken, "abcdef")))
    assert "taken" not in text(few, with_failures=False)
    assert "✗ 6 × topic … is taken. Choose another." in text(many, with_failures=False)


def test_what_is_in_doubt_is_counted_apart_and_named() -> None:
    no_answer = RetryableError("no answer", hint="Look at the cluster.")
    result = RunResult(
        {},
        failed=(FailedAction(*ids("a"), no_answer), taken("b")),
        in_doubt=(create("a"),),
        unknown=IncompleteError("cluster west cannot be read: no answer", hint="Then run: reconciler apply."),
    )
    told = text(result).splitlines()
    assert told[0] == "Done: nothing · 1 failed · 1 in doubt · state #5 · in 12.3 s"
    assert told[-1] == "? in doubt until the next apply has looked: create:topic/west/a"
    verdict = choose_verdict(result)
    assert isinstance(verdict, IncompleteError)
    assert verdict.message == "1 action is in doubt: cluster west cannot be read: no answer"


def test_what_was_approved_and_is_needed_no_more_takes_one_line() -> None:
    told = text(RunResult({}), skipped=ids(*(f"t{n}" for n in range(MANY)))).splitlines()
    assert told[0].endswith("create:topic/west/t2 and 1,997 more: no longer needed")


def test_what_was_skipped_because_of_something_that_was_done_after_all_is_no_success() -> None:
    verdict = choose_verdict(
        RunResult({}, done=ids("a"), skipped=(ActionSkipped(id=ids("b")[0], because="create:topic/west/a"),))
    )
    assert isinstance(verdict, PartialError)
    assert verdict.exit_code == 8
    assert "1 action was not run" in verdict.message


def test_a_large_failure_is_one_line_in_the_end() -> None:
    verdict = choose_verdict(large()[0])
    assert isinstance(verdict, PartialError)
    assert verdict.message == (
        "401 actions failed, 600 more were not tried because of that; the first is create:topic/west/t0000: "
        "topic t0000 is taken"
    )


def test_as_they_happen_the_first_few_of_a_kind_are_told_and_the_rest_only_counted() -> None:
    failures = FailureFormatter()
    events = [
        ActionFailed(*ids(f"t{n}"), Address(f"topic/west/t{n}"), f"topic t{n} is taken", "Choose another.")
        for n in range(MANY)
    ]
    told = to_plain_text(line for event in events for line in failures.format_next_failure(event)).splitlines()
    assert [line.split(":")[0] for line in told] == ["✗ create"] * 5 + ["  more like it are counted at the end"]
    other = ActionFailed(*ids("x"), Address("topic/west/x"), "quota reached", "Ask for more.")
    assert len(failures.format_next_failure(other)) == 1


def test_what_an_earlier_run_left_in_doubt_takes_a_line_a_fate_however_much_it_was() -> None:
    fates = {name: "done" if position % 2 else "absent" for position, name in enumerate(ids(*"abcdefghijkl"))}
    told = to_plain_text(format_recovery(RunRecovered("run-0", "bob@laptop", fates))).splitlines()
    assert told == [
        "Run run-0 of bob@laptop had not closed: 12 actions in doubt",
        "  create:topic/west/a, create:topic/west/c, create:topic/west/e and 3 more: had not happened",
        "  create:topic/west/b, create:topic/west/d, create:topic/west/f and 3 more: had happened, and is recorded now",
    ]


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (RunRecovered("r0", "bob", {}, "stopped", 4000), "Run r0 of bob was stopped: 4,000 actions not begun"),
        (RunRecovered("r0", "bob", {}, "detached", 3), "Run r0 of bob left 3 actions to others"),
        (RunRecovered("r0", "bob", {}, None, 2), "Run r0 of bob had not closed: 2 actions not begun"),
        (RunRecovered("r0", "bob", {}), "Run r0 of bob had not closed: all of it is done"),
    ],
)
def test_how_a_run_came_to_be_open_is_told_without_a_doubt_that_is_none(event: RunRecovered, told: str) -> None:
    assert to_plain_text(format_recovery(event)).splitlines() == [told]


def test_a_lease_that_was_freed_with_nothing_in_doubt_says_only_what_is_left() -> None:
    doubt = UnsettledWork("r0", left=("update:link/west/a",))
    told = to_plain_text(format_unlock(UnlockResult(was_free=True, doubt=doubt))).splitlines()
    assert told[1:] == ["Run r0 is open; 1 action not begun"]


def test_json_says_the_same() -> None:
    result, _ = large()
    event = Summary(
        "run-1",
        done=len(result.done),
        failed=len(result.failed),
        skipped=len(result.skipped),
        not_started=0,
        seconds=12.3,
        serial=5,
        skipped_because={each.id: each.because for each in result.skipped},
        failures=group_failures(result.failed),
        in_doubt=ids("z"),
    )
    said: dict[str, Any] = orjson.loads(format_event(event))
    jsonschema.validate(said, orjson.loads(SCHEMAS["event"]))
    assert [(group["error"], len(group["ids"])) for group in said["failures"]] == [
        ("topic … is taken", 400),
        ("quota reached", 1),
    ]
    assert said["in_doubt"] == ["create:topic/west/z"]


def test_what_was_mounted_and_unmounted_says_where_it_lies_and_what_it_is_called() -> None:
    moves = actions()[:4]
    done = text(RunResult({}, done=tuple(move.id for move in moves[:3])), moves)
    place = "shop:eu:clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/10"
    assert f"✓ mounting/west/shop:eu:clicks: detached at {place}\n" in done
    assert f"✓ mounting/east/shop:eu:clicks: mounted from {place} as shop:eu:clicks-2025\n" in done
    assert "visits" not in done  # it was not done


def test_an_unmount_whose_location_the_plan_cannot_know_says_where_to_see_it() -> None:
    unmount, *_ = actions()
    assert isinstance(unmount.after, Mounting)
    bare = unmount.after.model_copy(update={"spec": unmount.after.spec.model_copy(update={"source": None})})
    by_platform = replace(unmount, after=bare, parameters={}, estimate=replace(unmount.estimate, location=None))
    done = text(RunResult({}, done=(by_platform.id,)), [by_platform])
    assert f"✓ {unmount.address}: detached; reconciler mount list shows its location\n" in done


def test_of_many_that_were_unmounted_some_are_named() -> None:
    unmount, *_ = actions()
    moves = [replace(unmount, address=Address(f"mounting/west/t{number}")) for number in range(40)]
    done = text(RunResult({}, done=tuple(move.id for move in moves)), moves)
    assert done.count("detached at") == 20
    assert "  and 20 more\n" in done


def test_a_mount_that_failed_says_why_and_nothing_of_what_was_not_done() -> None:
    (_, _, mount, _, *_) = actions()
    error = UserError("it was cancelled: 10m have passed", hint="Try again with a longer timeout.")
    said = text(RunResult({}, done=(), failed=(FailedAction(mount.id, error),)), [mount])
    assert f"✗ {mount.id}: it was cancelled: 10m have passed. Try again with a longer timeout.\n" in said
    assert "mounted from" not in said


def test_a_stopped_run_counts_what_is_in_doubt_apart_from_what_was_not_started() -> None:
    begun, left = ids(*(f"a{n}" for n in range(50))), ids(*(f"b{n}" for n in range(50)))
    result = RunResult({}, not_started=(*begun, *left), unanswered=begun, is_stopped=True)
    assert text(result) == (
        "Done: nothing · 50 in doubt · 50 not started · state #5 · in 12.3 s\n"
        "? in doubt until the next apply has looked: create:topic/west/a0, create:topic/west/a1, create:topic/west/a2 "
        "and 47 more\n"
    )
    verdict = choose_verdict(result)
    assert verdict is not None
    assert verdict.message == (
        "stopped: 50 actions are in doubt, 50 are not started; whether these happened is not known: "
        "create:topic/west/a0, create:topic/west/a1, create:topic/west/a2 and 47 more"
    )


# What a run says while it goes.


MIRROR = "mirror:mirror/east/shop:refunds"
ADDRESS = Address("mirror/east/shop:refunds")
EVENTS: tuple[Event, ...] = (
    Approval(("create:topic/west/c",), StateAdvance(7, 9, "r0", "apply", "bob@laptop", "2026-01-01T00:00:00Z")),
    Approval(()),
    PlanMade(Plan(workspace="shop", environment=None, base=None, tool="0.1.0", git_commit=None, actions=())),
    ActionStarted(MIRROR, ADDRESS),
    Progress(MIRROR, 1_200_000, 4_100_000, 10, 40, 10.0, 24.2),
    Progress(MIRROR, 0, 0, 0, 0, 0.0),
    ActionDone(MIRROR, ADDRESS, 12.3456, 336_776, 30 * 2**20, JobExecution("Spark local[*]", 12)),
    ActionDone("create:topic/west/a", Address("topic/west/a"), 0.1),
    ActionFailed("create:topic/west/[red]\x1b", Address("topic/west/b"), "no", "Mend it."),
    LeaseLost("run 7 took over"),
    RunRecovered("r0", "bob@laptop", {"create:topic/west/a": "done", MIRROR: "partial"}),
    RunHandedOver((MIRROR,)),
    Summary("r1", done=2, failed=1, skipped=1, not_started=0, seconds=1.5, serial=7, skipped_because={"a": "b"}),
    ResultMissing("r1", "cannot write /s/runs/r1/result.json: the disk is full", 7),
)


def test_in_json_every_event_is_one_line_that_follows_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    with open_reporter("json") as report:
        for event in EVENTS:
            report(event)
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["event"] for line in lines] == [
        "approved",
        "approved",
        "plan",
        "action_started",
        "progress",
        "progress",
        "action_done",
        "action_done",
        "action_failed",
        "lease_lost",
        "recovered",
        "detached",
        "summary",
        "result_missing",
    ]
    schema = json.loads(SCHEMAS["event"])
    for line in lines:
        jsonschema.validate(json.loads(line), schema)


def test_the_last_line_of_a_stale_plan_says_that_more_would_be_lost() -> None:
    losses = (Losses({LossKind.ROLE: 3}), Losses({LossKind.ROLE: 5}))
    more = replace(describe_missing(actions()[0], planned=()), whys=(Why.LOSS,), losses=losses)
    error = ChangedPlanError("more would be lost", ApprovalCheck(SameOrLess((more,))), hint="Plan again.")
    (said,) = json.loads(format_error_event(error))["stale"]["more"]
    assert (said["why"], said["message"]) == (["loss"], "5 offsets would be lost now, and 3 when it was approved")


def test_an_event_is_the_same_line_every_time() -> None:
    assert [format_event(event) for event in EVENTS] == [format_event(event) for event in EVENTS]


def test_how_a_run_ended_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    ending = FinishedRun()
    with open_reporter("text", ending) as report:
        for event in EVENTS:
            report(event)
    assert ending.summary == EVENTS[-2]
    capsys.readouterr()


def _seconds(*times: float) -> Iterator[float]:
    yield from times


def test_in_a_pipe_there_is_at_most_a_line_every_few_seconds_but_failures_come_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    times = _seconds(0.0, 1.0, 4.9, 5.0, 6.0, 10.1)
    lines = LinePrinter(clock=lambda: next(times))
    for done in (1_000, 2_000, 3_000, 4_000, 5_000):
        lines.handle_event(Progress(MIRROR, done, 10_000, 0, 0, 1.0, 60.0))
    lines.handle_event(EVENTS[8])
    assert capsys.readouterr().err.splitlines() == [
        f"{MIRROR}: 3,000 of 10,000 records, 3,000 records/s, about 1 min left",
        f"{MIRROR}: 5,000 of 10,000 records, 5,000 records/s, about 1 min left",
        "✗ create:topic/west/[red]\\x1b: no. Mend it.",
    ]


@pytest.mark.parametrize(
    ("starting_s", "said"),
    [
        (0.0, "in 12.3 s (27,279 records/s)"),
        (0.04, "in 12.3 s (27,368 records/s)"),
        (4.3, "in 12.3 s, 4.3 s of it to start Spark (41,858 records/s)"),
    ],
)
def test_in_a_pipe_a_job_says_what_it_moved(capsys: pytest.CaptureFixture[str], starting_s: float, said: str) -> None:
    ran = JobExecution("Spark local[*]", 12, starting_s)
    LinePrinter(clock=lambda: 0.0).handle_event(ActionDone(MIRROR, ADDRESS, 12.3456, 336_776, 30 * 2**20, ran))
    assert capsys.readouterr().err == f"✓ {MIRROR}: 336,776 records, 30 MiB {said}, Spark local[*], 12 tasks\n"


def test_a_missing_summary_is_told_with_where_everything_is_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    LinePrinter(clock=lambda: 0.0).handle_event(EVENTS[-1])
    assert capsys.readouterr().err == (
        "! What was done is recorded as state #7. Only the summary of run r1 is missing: "
        "cannot write /s/runs/r1/result.json: the disk is full. Nothing has to be run again for it.\n"
    )


# `run` as text: a row says of each job what it counts, and nothing of what it does not.


@pytest.mark.parametrize(
    ("upkept", "said"),
    [
        (MaintenanceJobResult("topic", 1, bytes=10_342), "migrations west 1 topic - 10.1 KiB"),
        (MaintenanceJobResult("partition", 2, 5, 2048), "migrations west 2 partitions 5 2 KiB"),
        (MaintenanceJobResult("topic", 1), "migrations west 1 topic 0 -"),
    ],
)
def test_a_job_that_writes_bytes_and_counts_no_records_says_so_with_a_dash(
    upkept: MaintenanceJobResult, said: str
) -> None:
    upkeep = PassResult((), (JobOutcome("migrations", "west", 0.1, upkept),), 0.1)
    row = to_plain_text(format_upkeep(upkeep)).splitlines()[1]
    assert " ".join(row.split()).startswith(said)


def test_a_partition_that_a_sweep_deleted_is_a_line_of_its_own() -> None:
    note = str(SweptPartition("x1", 0, 400))
    swept = JobOutcome("sweep", "west", 0.1, MaintenanceJobResult("object", 2, bytes=2000, notes=(note,)))
    upkeep = PassResult((), (swept,), 0.1)
    assert "sweep:west: deleted partition 0 of topic id x1, which was deleted: 400 records" in to_plain_text(
        format_upkeep(upkeep)
    )
    assert note in to_plain_text([format_pass(upkeep, 1)])
    assert PIPELINE.build_row(upkeep)["jobs"][0]["notes"] == [note]


def test_where_nothing_is_to_do_it_says_which_mirrors_are_left_out() -> None:
    said = to_plain_text(format_upkeep(PassResult((), (), 0.1, left={"PAUSED": 2, "STOPPED": 1})))
    assert said.rstrip() == "Nothing to do: 0 jobs, 0 mirrors. Not copied: 3 mirrors (2 PAUSED, 1 STOPPED)."


# What is said of mounts and unmounts that wait, were stopped, were done, or are only forgotten.


WEST, EAST = Address("mounting/west/shop:eu:clicks"), Address("mounting/east/shop:eu:clicks")
LOCATION = "shop:eu:clicks/67f5505a-32f3-4677-bcad-3c75a1a702a6/6"


def waiting() -> Plan:
    return replace(
        empty(), waiting=(UnfinishedTransition(WEST, "preparing"), UnfinishedTransition(EAST, "MIGRATING", after=WEST))
    )


def test_what_waits_is_counted_where_nothing_is_planned_and_where_something_is() -> None:
    assert format_totals(waiting()) == "2 waiting"
    assert format_totals(replace(waiting(), actions=actions()[:1])) == "1 to move · 2 waiting"
    assert format_totals(empty()) == "nothing to do"
    assert "**2 waiting**" in format_plan_comment(waiting())


def test_a_mount_that_waits_for_another_clusters_unmount_says_where_its_progress_is_and_what_apply_does() -> None:
    said = to_plain_text(format_plan(waiting()))
    assert f"… {WEST}  preparing: how far it is, and what finishes it: reconciler mount status\n" in said
    after = f"waits for {WEST}: `apply` this one once `mount status` no longer lists that one"
    assert f"… {EAST}  {after}\n" in said
    assert f"{EAST}: {after}" in [row.message for row in list_plan_remarks(waiting()).rows]


@pytest.mark.parametrize(
    "waiting",
    [
        UnfinishedTransition(Address("topic/west/shop:eu:clicks"), "MIGRATING"),
        UnfinishedTransition(WEST, "prepared"),
        UnfinishedTransition(WEST, "executed"),
    ],
    ids=["topic", "prepared", "executed"],
)
def test_what_is_on_its_way_may_wait_for_a_hand_and_its_status_says_so(waiting: UnfinishedTransition) -> None:
    said = to_plain_text(format_plan(replace(empty(), waiting=(waiting,))))
    assert f"{waiting.state.lower()}: how far it is, and what finishes it: reconciler mount status\n" in said


def test_what_something_waits_for_is_kept_in_the_json_of_a_plan() -> None:
    plan = replace(waiting(), actions=(), digest=compute_digest(()))
    assert read_plan_to_show(encode_saved_plan(plan, {})).plan.waiting == plan.waiting


@pytest.mark.parametrize("reason", [Reason.ALREADY_GONE, Reason.NO_LONGER_DECLARED, Reason.DESTROYED])
def test_forgetting_what_lies_detached_says_where_its_records_stay(reason: Reason) -> None:
    forget = Forget(
        address=Address("topic/west/shop:eu:clicks"), reasons=(reason,), estimate=Estimate(location=LOCATION)
    )
    said = to_plain_text(format_plan(replace(empty(), actions=(forget,))))
    assert f"forget, leave it alone  its records stay in object storage: {LOCATION}\n" in said
    assert "deleted from the cluster" not in said
    assert f"its records stay in object storage: {LOCATION}" in to_plain_text(format_planned_action(forget))


def test_forgetting_a_topic_that_was_made_anew_does_not_say_that_it_is_gone() -> None:
    forget = Forget(address=Address("topic/west/shop:eu:clicks"), reasons=(Reason.RECREATED,))
    said = to_plain_text(format_plan(replace(empty(), actions=(forget,))))
    assert "created again outside the plans of this workspace; the new one stays\n" in said
    assert "deleted from the cluster" not in said


def test_a_mount_is_explained_by_the_state_that_is_wanted() -> None:
    unmount, mount = actions()[0], actions()[2]
    assert "because    unmounted is wanted\n" in to_plain_text(format_planned_action(unmount))
    assert "because    mounted is wanted\n" in to_plain_text(format_planned_action(mount))


def test_in_a_pipe_each_job_is_told_of_and_how_fast_its_bytes_and_partitions_go(
    capsys: pytest.CaptureFixture[str],
) -> None:
    now = [0.0]
    lines = LinePrinter(clock=lambda: now[-1], is_timed=True)
    now.append(65.2)
    for name in ("a", "b", "a"):
        lines.handle_event(Progress(name, 10, 20, 2**20, 2**21, 1.0, 1.0, partitions_done=1, partitions=3))
    lines.handle_event(ActionFailed("c", EAST, "no", "Mend it."))
    assert capsys.readouterr().err.splitlines() == [
        "[1 min 5 s] a: 10 of 20 records, 1 of 3 partitions, 10 records/s, 1 MiB/s, about 1 s left",
        "[1 min 5 s] b: 10 of 20 records, 1 of 3 partitions, 10 records/s, 1 MiB/s, about 1 s left",
        "[1 min 5 s] ✗ c: no. Mend it.",
    ]


def test_the_last_count_in_a_pipe_is_of_all_that_was_done(capsys: pytest.CaptureFixture[str]) -> None:
    times = iter([0.0, 6.0, 6.1, 6.2])
    lines = LinePrinter(clock=lambda: next(times))
    for number in range(3):
        lines.handle_event(ActionDone(f"mount:{number}", EAST, 0.1))
    lines.handle_event(Summary("r1", done=3, failed=0, skipped=0, not_started=0, seconds=6.3))
    assert capsys.readouterr().err.splitlines() == ["1 action done", "3 actions done"]


def test_what_no_allow_lifts_is_not_mistaken_for_a_hint_with_one() -> None:
    hint = f"Where that cluster is lost permanently: reconciler mount release {LOCATION} --allow release:{LOCATION}"
    error = combine_errors([PlanFinding(EAST, None, f"{LOCATION} is mounted on another cluster", hint)])
    assert isinstance(error, UserError)
    assert error.hint == "No --allow but those named above lifts these."
    assert combine_errors([PlanFinding(EAST, None, "no", "Mend it.")]).hint == "No --allow lifts these."


@pytest.mark.parametrize(("runs", "lines"), [(0, 0), (10, 10), (1_234, 11)])
def test_of_records_that_others_wrote_into_a_mirror_the_first_places_are_named(runs: int, lines: int) -> None:
    foreign = tuple(ForeignRecords(0, 2 * at, 2 * at + 1, 1) for at in range(runs))
    left, right = Address("mirror/east/orders"), Address("topic/west/orders")
    text = to_plain_text(
        format_verification(TopicComparison(left, right, Comparison((), is_deep=False), None, foreign))
    )
    named = [one for one in text.splitlines() if one.startswith(("foreign", "and "))]
    assert len(named) == lines
    assert named[10:] == ["and 1,224 more (--format json has all)"] * (runs > 10)
