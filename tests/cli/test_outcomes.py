"""What came of a run is read at a glance, be it three actions or two thousand."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest

from reconciler.applying.engine import RunResult
from reconciler.applying.events import ActionFailed, Recovered, Summary, alike
from reconciler.cli.json.runs_json import EventDocument, event_line
from reconciler.cli.text.lines import text_of
from reconciler.cli.text.runs_text import Failures, applied_text, recovered_lines
from reconciler.cli.text.states_text import unlocked_text
from reconciler.errors import IncompleteError, PartialError, RetryableError, UserError
from reconciler.operations.plan import verdict_of
from reconciler.planning.actions import Create
from reconciler.providers.protocol import Failed
from reconciler.resources.address import Address
from reconciler.resources.topic import Topic
from reconciler.state.journal import ActionSkipped
from reconciler.state.repair import Doubt, Unlocked
from tests.cli.sample_mounting import actions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.operations.apply import Applied
    from reconciler.planning.actions import Action

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
    return text_of(applied_text(cast("Applied", applied), summary, with_failures=with_failures))


def taken(name: str) -> Failed:
    return Failed(*ids(name), UserError(f"topic {name} is taken", hint="Choose another."))


def large() -> tuple[RunResult, list[Action]]:
    """Two thousand actions: most are done, many fail alike, and much is skipped for it."""
    names = [f"t{n:04}" for n in range(MANY)]
    bad, lost = names[:400], names[400:1000]
    result = RunResult(
        {},
        done=ids(*names[1001:]),
        failed=(*map(taken, bad), Failed(*ids(names[1000]), UserError("quota reached", hint="Ask for more."))),
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
    failed = tuple(Failed(*ids(f"t{n}"), UserError(f"reason {n}", hint="Look.")) for n in range(MANY))
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
        failed=(Failed(*ids("a"), no_answer), taken("b")),
        in_doubt=(create("a"),),
        unknown=IncompleteError("cluster west cannot be looked at: no answer", hint="Then run: reconciler apply."),
    )
    told = text(result).splitlines()
    assert told[0] == "Done: nothing · 1 failed · 1 in doubt · state #5 · in 12.3 s"
    assert told[-1] == "? in doubt until the next apply has looked: create:topic/west/a"
    verdict = verdict_of(result)
    assert isinstance(verdict, IncompleteError)
    assert verdict.message == "1 action is in doubt: cluster west cannot be looked at: no answer"


def test_what_was_approved_and_is_needed_no_more_takes_one_line() -> None:
    told = text(RunResult({}), skipped=ids(*(f"t{n}" for n in range(MANY)))).splitlines()
    assert told[0].endswith("create:topic/west/t2 and 1,997 more: no longer needed")


def test_what_was_skipped_because_of_something_that_was_done_after_all_is_no_success() -> None:
    verdict = verdict_of(
        RunResult({}, done=ids("a"), skipped=(ActionSkipped(id=ids("b")[0], because="create:topic/west/a"),))
    )
    assert isinstance(verdict, PartialError)
    assert verdict.exit_code == 8
    assert "1 action was not tried" in verdict.message


def test_a_large_failure_is_one_line_in_the_end() -> None:
    verdict = verdict_of(large()[0])
    assert isinstance(verdict, PartialError)
    assert verdict.message == (
        "401 actions failed, 600 more were not tried because of that; the first is create:topic/west/t0000: "
        "topic t0000 is taken"
    )


def test_as_they_happen_the_first_few_of_a_kind_are_told_and_the_rest_only_counted() -> None:
    failures = Failures()
    events = [
        ActionFailed(*ids(f"t{n}"), Address(f"topic/west/t{n}"), f"topic t{n} is taken", "Choose another.")
        for n in range(MANY)
    ]
    told = text_of(line for event in events for line in failures.lines(event)).splitlines()
    assert [line.split(":")[0] for line in told] == ["✗ create"] * 5 + ["  more like it are counted at the end"]
    other = ActionFailed(*ids("x"), Address("topic/west/x"), "quota reached", "Ask for more.")
    assert len(failures.lines(other)) == 1


def test_what_an_earlier_run_left_in_doubt_takes_a_line_a_fate_however_much_it_was() -> None:
    fates = {name: "done" if position % 2 else "absent" for position, name in enumerate(ids(*"abcdefghijkl"))}
    told = text_of(recovered_lines(Recovered("run-0", "bob@laptop", fates))).splitlines()
    assert told == [
        "Run run-0 of bob@laptop had not closed: 12 actions in doubt",
        "  create:topic/west/a, create:topic/west/c, create:topic/west/e and 3 more: had not happened",
        "  create:topic/west/b, create:topic/west/d, create:topic/west/f and 3 more: had happened, and is recorded now",
    ]


@pytest.mark.parametrize(
    ("event", "told"),
    [
        (Recovered("r0", "bob", {}, "stopped", 4000), "Run r0 of bob was stopped: 4,000 actions not begun"),
        (Recovered("r0", "bob", {}, "detached", 3), "Run r0 of bob left 3 actions to others"),
        (Recovered("r0", "bob", {}, None, 2), "Run r0 of bob had not closed: 2 actions not begun"),
        (Recovered("r0", "bob", {}), "Run r0 of bob had not closed: all of it is done"),
    ],
)
def test_how_a_run_came_to_be_open_is_told_without_a_doubt_that_is_none(event: Recovered, told: str) -> None:
    assert text_of(recovered_lines(event)).splitlines() == [told]


def test_a_lease_that_was_freed_with_nothing_in_doubt_says_only_what_is_left() -> None:
    doubt = Doubt("r0", left=("update:link/west/a",))
    told = text_of(unlocked_text(Unlocked(was_free=True, doubt=doubt))).splitlines()
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
        failures=alike(result.failed),
        in_doubt=ids("z"),
    )
    line = event_line(event)
    EventDocument.model_validate_json(line)
    said: dict[str, Any] = orjson.loads(line)
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


def test_of_many_that_were_unmounted_some_are_named() -> None:
    unmount, *_ = actions()
    moves = [replace(unmount, address=Address(f"mounting/west/t{number}")) for number in range(40)]
    done = text(RunResult({}, done=tuple(move.id for move in moves)), moves)
    assert done.count("detached at") == 20
    assert "  and 20 more\n" in done


def test_a_mount_that_failed_says_why_and_nothing_of_what_was_not_done() -> None:
    (_, _, mount, _, *_) = actions()
    error = UserError("it was cancelled: 10m have passed", hint="Try again with a longer timeout.")
    said = text(RunResult({}, done=(), failed=(Failed(mount.id, error),)), [mount])
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
    verdict = verdict_of(result)
    assert verdict is not None
    assert verdict.message == (
        "stopped: 50 actions are in doubt, 50 are not started; whether these happened is not known: "
        "create:topic/west/a0, create:topic/west/a1, create:topic/west/a2 and 47 more"
    )
