"""A plan that was approved by its digest, and by whom: it is done, or what a run of it left, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.applying.events import Event, Summary
from reconciler.errors import (
    BlockedError,
    IncompleteError,
    RetryableError,
    StalePlanError,
    UnansweredError,
    UsageError,
)
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions, ApplyOutcome
from reconciler.operations.state_views import state_history
from reconciler.operations.steps.approval import ChangedPlanError, parse_digest
from reconciler.operations.steps.invocation import Select
from reconciler.providers.embedded.provider import EmbeddedProvider
from tests.embedded.deaths import opened
from tests.operations.test_approval import REFUNDS, alter, retention
from tests.operations.test_crash import NAMESPACE, TOPIC, create_topic, die_at, unlock

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from conftest import Bench

    from reconciler.planning.actions import ControlAction
    from reconciler.providers.protocol import Outcome, Scope
    from reconciler.resources.inventory import Inventory


ORDERS = "topic/west/shop:orders"
DELETE = f"delete:{ORDERS}"


def apply_digest(bench: Bench, digest: str, *names: str, file: Path | None = None) -> ApplyOutcome:
    return bench.apply(options=ApplyOptions(approved_digest=digest, approved_by=names, file=file))


def test_the_plan_with_the_digest_is_done_without_a_question_other_than_the_plan_itself(applied: Bench) -> None:
    retention(applied, "{retention.ms: 3d}")
    done = apply_digest(applied, applied.plan().plan.digest)
    assert (done.verdict, applied.plan().plan.is_empty) == (None, True)


@pytest.mark.parametrize("change", ["files", "cluster"])
def test_another_plan_is_refused_and_nothing_is_done(applied: Bench, change: str) -> None:
    retention(applied, "{retention.ms: 3d}")
    digest = applied.plan().plan.digest
    if change == "files":
        applied.write("manifests/refunds.yaml", REFUNDS)
    else:
        alter(applied, 6)
    before = applied.plan().plan
    with pytest.raises(StalePlanError, match=f"{digest[:8]} was, and this is {before.digest[:8]}: ") as caught:
        apply_digest(applied, digest)
    assert (caught.value.exit_code, applied.plan().plan.digest) == (6, before.digest)


def test_where_all_of_it_is_done_already_nothing_is_left_to_refuse(applied: Bench) -> None:
    retention(applied, "{retention.ms: 3d}")
    digest = applied.plan().plan.digest
    assert applied.apply().verdict is None
    assert apply_digest(applied, digest).result is None


@pytest.mark.thorough
@pytest.mark.parametrize("landed", ["not at all", "after all"])
def test_the_rest_of_a_run_that_was_killed_is_done_with_the_same_digest(bench: Bench, landed: str) -> None:
    digest = bench.plan().plan.digest
    die_at(bench, "ActionStarted", TOPIC)
    if landed == "after all":
        create_topic(bench)
    unlock(bench)
    assert bench.plan().plan.digest != digest
    assert apply_digest(bench, digest).verdict is None
    assert bench.plan().plan.is_empty


def test_more_than_a_run_that_was_killed_left_is_told_and_refused(bench: Bench) -> None:
    digest = bench.plan().plan.digest
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    bench.write("manifests/refunds.yaml", REFUNDS)
    with pytest.raises(ChangedPlanError) as caught:
        apply_digest(bench, digest)
    assert [each.id for each in caught.value.held.difference.more] == ["create:topic/west/shop:refunds"]


def test_a_file_that_holds_another_plan_is_refused(applied: Bench) -> None:
    retention(applied, "{retention.ms: 3d}")
    digest = applied.plan(out=Path("p.json")).plan.digest
    with pytest.raises(StalePlanError, match=f"p.json holds the plan {digest[:8]}, and 00000000 was approved"):
        apply_digest(applied, "0" * 64, file=Path("p.json"))
    assert apply_digest(applied, digest, file=Path("p.json")).verdict is None


@pytest.mark.parametrize("text", ["", "7c41d2aa", "g" * 64, "0" * 63, "0" * 65])
def test_what_is_not_a_whole_digest_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="64 hexadecimal digits"):
        parse_digest(text)


def test_a_digest_is_read_however_it_was_copied() -> None:
    assert parse_digest(f" {'AB' * 32}\n") == "ab" * 32


def test_an_open_run_has_its_own_approval(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    with pytest.raises(UsageError, match="--resume cannot be combined with --expect-digest"):
        bench.apply(options=ApplyOptions(resumes=True, approved_digest="0" * 64))


# Who approved it.


@pytest.fixture
def filled(applied: Bench) -> Bench:
    """The same, with a record in its topic, so that its deletion loses something."""
    cluster = opened(DirectoryStore(applied.folder / ".clusters/west"))
    with cluster.producer() as producer:
        producer.send("shop:orders", "an order")
    return applied


def ask_for(bench: Bench, approvals: str) -> None:
    workspace = (bench.folder / "reconciler.yaml").read_text()
    bench.write("reconciler.yaml", f"{workspace}spec: {{guards: {{approvals: {approvals}}}}}\n")


def test_who_approved_it_and_where_is_kept_with_the_run_and_shown_in_the_history(applied: Bench) -> None:
    retention(applied, "{retention.ms: 3d}")
    options = ApplyOptions(yes=True, approved_by=("anna", "bob"), pull_request="https://forge.example/shop/pulls/7")
    applied.apply(options=options)
    newest, first = state_history(applied.invocation, Select()).rows
    assert (newest.approved_by, newest.pull_request) == (("anna", "bob"), "https://forge.example/shop/pulls/7")
    assert (first.approved_by, first.pull_request) == ((), None)


@pytest.mark.parametrize(
    ("approvals", "names", "said"),
    [
        ("{data-loss: 2}", (), "2 people must have approved delete:topic/west/shop:orders, and no approver is named"),
        ("{data-loss: 2}", ("anna",), "2 people must have approved .*, and anna did"),
        ("{data-loss: 2}", ("anna", "@Anna ", ""), "2 people must have approved .*, and anna did"),
        ("{data-loss: 1}", (), "1 person must have approved"),
        ("{disruptive: 2, data-loss: 1}", ("anna",), "2 people must have approved"),
        ("{data-loss: 2}", ("anna", "bob"), None),
        ("{}", (), None),
    ],
)
def test_a_plan_that_loses_records_needs_as_many_approvers_as_the_workspace_asks_for(
    filled: Bench, approvals: str, names: tuple[str, ...], said: str | None
) -> None:
    ask_for(filled, approvals)
    (filled.folder / "manifests/orders.yaml").unlink()
    allowed = Select(allow=(DELETE,))
    options = ApplyOptions(yes=True, approved_by=names)
    if said is None:
        assert filled.apply(allowed, options).verdict is None
        return
    with pytest.raises(BlockedError, match=said) as caught:
        filled.apply(allowed, options)
    assert caught.value.exit_code == 7
    assert [action.id for action in filled.plan(allowed).plan.actions] == [DELETE]


def test_the_plan_says_how_many_approvers_an_apply_will_ask_for(filled: Bench) -> None:
    ask_for(filled, "{data-loss: 2}")
    (filled.folder / "manifests/orders.yaml").unlink()
    blocked, open_ = filled.plan().plan, filled.plan(Select(allow=(DELETE,))).plan
    assert not [finding for finding in blocked.warnings if "guards.approvals" in finding.message]
    (found,) = (finding for finding in open_.warnings if "guards.approvals" in finding.message)
    assert found.message == f"apply asks for 2 approvers (guards.approvals), because of {DELETE}"


def test_what_loses_nothing_needs_no_approver(filled: Bench) -> None:
    ask_for(filled, "{data-loss: 2}")
    filled.write("manifests/refunds.yaml", REFUNDS)
    assert filled.apply().verdict is None


def test_nobody_is_asked_at_a_terminal_about_what_too_few_approved(filled: Bench) -> None:
    ask_for(filled, "{data-loss: 2}")
    (filled.folder / "manifests/orders.yaml").unlink()
    filled.asked.clear()
    with pytest.raises(BlockedError, match="2 people"):
        filled.apply(Select(allow=(DELETE,)), ApplyOptions())
    assert filled.asked == []


@pytest.mark.parametrize("goes_on", ["--resume", "a new plan"])
def test_the_history_names_a_killed_run_beside_the_state_that_a_later_run_recorded_of_it(
    bench: Bench, goes_on: str
) -> None:
    die_at(bench, "ActionDone", TOPIC)
    unlock(bench)
    bench.apply(options=ApplyOptions(resumes=True) if goes_on == "--resume" else None)
    (row,) = state_history(bench.invocation, Select()).rows
    assert (row.run, row.command, row.who) == ("the-dead-run", "apply", "bob@laptop")
    assert row.started is not None
    assert row.settled_by is not None


# An approval is for once.


def save(bench: Bench, days: int) -> str:
    """Plan another retention, save that as FILE, and return its digest."""
    retention(bench, f"{{retention.ms: {days}d}}")
    return bench.plan(out=Path("p.json")).plan.digest


@pytest.mark.parametrize("by", ["file", "digest"])
def test_an_approved_plan_that_was_done_is_not_done_again_once_a_later_run_changed_what_came_of_it(
    applied: Bench, by: str
) -> None:
    digest = save(applied, 8)
    options = ApplyOptions(file=Path("p.json")) if by == "file" else ApplyOptions(approved_digest=digest)
    assert applied.apply(options=options).verdict is None
    retention(applied, "{retention.ms: 7d}")
    assert applied.apply().verdict is None
    retention(applied, "{retention.ms: 8d}")
    assert applied.plan().plan.digest == digest
    with pytest.raises(
        StalePlanError, match=rf"already applied this plan .*, and run .* changed {ORDERS} since"
    ) as caught:
        applied.apply(options=options)
    assert caught.value.exit_code == 6
    save(applied, 8)
    assert applied.apply(options=ApplyOptions(file=Path("p.json"))).verdict is None


def test_an_approved_plan_counts_as_done_also_where_only_the_next_run_found_that(
    applied: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest, real, asked = save(applied, 8), EmbeddedProvider.apply, []

    def unanswered(self: EmbeddedProvider, actions: Sequence[ControlAction], **how: Any) -> Iterator[Outcome]:
        asked.extend(real(self, actions, **how))
        raise UnansweredError("no answer came", hint="Look.")

    seen = EmbeddedProvider.observe

    def observed(self: EmbeddedProvider, scope: Scope) -> Inventory:
        if asked:
            raise RetryableError("it does not answer", hint="Wait.")
        return seen(self, scope)

    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedProvider, "apply", unanswered)
        patched.setattr(EmbeddedProvider, "observe", observed)
        assert isinstance(apply_digest(applied, digest).verdict, IncompleteError)
    retention(applied, "{retention.ms: 7d}")
    assert applied.apply().verdict is None
    retention(applied, "{retention.ms: 8d}")
    assert applied.plan().plan.digest == digest
    with pytest.raises(StalePlanError, match="already applied this plan"):
        apply_digest(applied, digest)


def test_what_was_done_and_drifted_since_is_done_again_with_the_same_approval(applied: Bench) -> None:
    alter(applied, 6)
    digest = applied.plan().plan.digest
    assert apply_digest(applied, digest).verdict is None
    alter(applied, 6)
    assert applied.plan().plan.digest == digest
    assert apply_digest(applied, digest).result is not None


def test_the_same_plan_approved_in_another_pull_request_is_done(applied: Bench) -> None:
    digest = save(applied, 8)
    seven, nine = (
        ApplyOptions(approved_digest=digest, pull_request=f"https://forge.example/shop/pulls/{number}")
        for number in (7, 9)
    )
    assert applied.apply(options=seven).verdict is None
    retention(applied, "{retention.ms: 7d}")
    assert applied.apply().verdict is None
    retention(applied, "{retention.ms: 8d}")
    with pytest.raises(StalePlanError, match="already applied this plan"):
        applied.apply(options=seven)
    assert applied.apply(options=nine).verdict is None


def test_a_run_that_was_killed_is_finished_with_the_same_digest_also_after_another_apply(bench: Bench) -> None:
    bench.write("manifests/refunds.yaml", REFUNDS)
    digest = bench.plan().plan.digest
    die_at(bench, "ActionDone", NAMESPACE)
    unlock(bench)
    assert bench.apply(Select(targets=("topic/west/shop:refunds",))).verdict is None
    rest = bench.plan().plan
    assert [action.id for action in rest.actions] == [TOPIC]
    assert apply_digest(bench, digest).verdict is None
    assert bench.plan().plan.is_empty


def keep_a_record_for_ever(bench: Bench, topic: str) -> Callable[[Event], None]:
    """Let somebody do that once the plan is done: to set it back would lose the record."""

    def keep(event: Event) -> None:
        if isinstance(event, Summary):
            cluster = opened(DirectoryStore(bench.folder / ".clusters/west"))
            cluster.alter_topic(topic, configs={"retention.ms": "-1"})
            with cluster.producer() as producer:
                producer.send(topic, "an order")

    return keep


def test_a_second_look_does_nothing_that_too_few_people_approved(bench: Bench) -> None:
    ask_for(bench, "{data-loss: 1}")
    die_at(bench, "ActionStarted", TOPIC)
    create_topic(bench)
    unlock(bench)
    bench.write("manifests/refunds.yaml", REFUNDS)
    with pytest.raises(
        IncompleteError,
        match=r"^the plan is done, but unfinished actions of an earlier run were not continued: 1 person",
    ):
        bench.apply(Select(allow=(f"update:{ORDERS}",)), report=keep_a_record_for_ever(bench, "shop:orders"))
    assert [action.id for action in bench.plan().plan.actions] == [f"update:{ORDERS}"]


def test_a_second_look_is_not_refused_for_what_it_would_not_do(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    create_topic(bench)
    unlock(bench)
    bench.write(
        "manifests/refunds.yaml", REFUNDS.replace("partitions: 1", "partitions: 1, configs: {retention.ms: 1d}")
    )
    assert bench.apply(report=keep_a_record_for_ever(bench, "shop:refunds")).verdict is None
    assert [action.blocked is not None for action in bench.plan().plan.actions] == [True]
