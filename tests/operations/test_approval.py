"""A plan that was approved: the same is done or less, never more, and what differs is told by resource and field."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.json.checks_json import DRIFT
from reconciler.errors import BlockedError, DriftError, UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.drift_patch import accept
from reconciler.operations.steps.approval import ChangedPlanError
from reconciler.operations.steps.invocation import Select
from tests.operations.stage import alter_topic
from tests.operations.test_crash import MORE, TOPIC, create_topic, die_at, unlock

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.operations.plan import PlanResult


FILE = ApplyOptions(file=Path("p.json"))
STRICT = ApplyOptions(file=Path("p.json"), strict=True)
ORDERS = "topic/west/shop:orders"
DAY_MS = 86_400_000
REFUNDS = """\
apiVersion: reconciler/v1
kind: Topic
metadata: {name: refunds, namespace: shop, cluster: west}
spec: {partitions: 1}
"""


def retention(bench: Bench, text: str) -> None:
    """Let the files say another retention of the one topic."""
    bench.write(
        "manifests/orders.yaml",
        REFUNDS.replace("refunds", "orders").replace("{partitions: 1}", f"{{partitions: 3, configs: {text}}}"),
    )


def alter(bench: Bench, days: int) -> None:
    """Change that retention on the cluster, behind our back."""
    acting = bench.acting("topic alter", no_state=True)
    alter_topic(acting, ORDERS, {"retention.ms": f"{days}d"})


def saved(bench: Bench, text: str = "{retention.ms: 3d}") -> None:
    retention(bench, text)
    bench.plan(out=Path("p.json"))


def refused(bench: Bench, options: ApplyOptions = FILE) -> ChangedPlanError:
    with pytest.raises(ChangedPlanError) as caught:
        bench.apply(options=options)
    assert caught.value.exit_code == 6
    assert "Nothing was done" in caught.value.hint
    return caught.value


def test_only_what_differs_is_told_and_nothing_is_asked(applied: Bench) -> None:
    saved(applied)
    applied.write("manifests/refunds.yaml", REFUNDS)
    applied.asked.clear()
    error = refused(applied)
    assert [each.id for each in error.held.difference.more] == ["create:topic/west/shop:refunds"]
    assert ORDERS not in error.message
    assert applied.asked == []


def test_a_plan_that_was_blocked_when_it_was_saved_is_blocked_and_not_stale(applied: Bench) -> None:
    (applied.folder / "manifests/orders.yaml").unlink()
    applied.plan(out=Path("p.json"))
    with pytest.raises(BlockedError):
        applied.apply(options=FILE)


def test_a_state_that_went_on_elsewhere_is_told_with_who_took_it_there_and_refused_only_if_strict(
    applied: Bench,
) -> None:
    saved(applied)
    applied.write("manifests/refunds.yaml", REFUNDS)
    bob = applied.with_(who="bob@laptop")
    assert bob.apply(Select(targets=("*refunds",))).verdict is None
    error = refused(applied, STRICT)
    assert "the state went from #1 to #2" in error.message
    assert "apply, bob@laptop" in error.message
    done = applied.apply(options=FILE)
    assert done.verdict is None
    assert done.advance is not None
    assert (done.advance.approved, done.advance.now, done.advance.who) == (1, 2, "bob@laptop")
    assert done.result is not None
    assert done.result.done == (f"update:{ORDERS}",)


def test_a_plan_of_the_first_apply_is_held_against_the_empty_state(bench: Bench) -> None:
    bench.plan(out=Path("p.json"))
    done = bench.apply(options=STRICT)
    assert (done.verdict, done.advance) == (None, None)


def test_with_strict_a_plan_of_another_commit_is_refused_before_a_lease_is_taken(applied: Bench) -> None:
    at = applied.with_(git_commit=lambda _folder: "1f2e9ab")
    saved(at)
    before = (applied.folder / ".reconciler/lockfile.json").read_bytes()
    with pytest.raises(UserError, match="is of git commit 1f2e9ab, this is 77aa00") as caught:
        at.with_(git_commit=lambda _folder: "77aa00").apply(options=STRICT)
    assert caught.value.exit_code == 1
    assert (applied.folder / ".reconciler/lockfile.json").read_bytes() == before
    assert at.with_(git_commit=lambda _folder: "77aa00").apply(options=FILE).verdict is None


def test_a_plan_of_a_state_that_was_replaced_is_refused(applied_here: Bench, tmp_path: Path) -> None:
    saved(applied_here)
    shutil.move(applied_here.folder / ".reconciler", tmp_path / "away")
    with pytest.raises(UserError, match="no state is there any more"):
        applied_here.apply(options=FILE)
    assert not (applied_here.folder / ".reconciler").exists()
    retention(applied_here, "{retention.ms: 7d}")
    assert applied_here.apply().verdict is None
    retention(applied_here, "{retention.ms: 3d}")
    with pytest.raises(UserError, match="another state is there"):
        applied_here.apply(options=FILE)


def test_a_plan_of_another_environment_is_that_environments(applied: Bench) -> None:
    applied.write("overlays/prod/refunds.yaml", REFUNDS)
    applied.plan(Select(environment="prod", allow=("adopt:*",)), out=Path("p.json"))
    other = applied.write("q.json", (applied.folder / "p.json").read_text().replace('"environment":"prod"', '"x":1', 1))
    with pytest.raises(UserError):
        applied.apply(options=ApplyOptions(file=other))
    applied.apply(options=FILE)
    assert (applied.folder / ".reconciler/env/prod/lockfile.json").exists()


def test_a_topic_altered_while_the_question_stands_is_caught_and_told_by_field(applied: Bench) -> None:
    retention(applied, "{retention.ms: 3d}")

    def confirm(_planned: PlanResult) -> bool:
        alter(applied, 6)
        return True

    with pytest.raises(ChangedPlanError) as caught:
        applied.apply(options=ApplyOptions(), confirm=confirm)
    (found,) = caught.value.held.difference.more
    assert [field.path for field in found.fields] == ["configs.retention.ms"]
    assert "reconciler apply" in caught.value.hint
    assert "--out" not in caught.value.hint


def test_an_apply_by_somebody_else_while_the_question_stands_leaves_less_to_do(applied: Bench) -> None:
    applied.write("manifests/refunds.yaml", REFUNDS)
    retention(applied, "{retention.ms: 3d}")

    def confirm(_planned: PlanResult) -> bool:
        assert applied.apply(Select(targets=("*refunds",))).verdict is None
        return True

    done = applied.apply(options=ApplyOptions(), confirm=confirm)
    assert done.verdict is None
    assert done.skipped == ("create:topic/west/shop:refunds",)
    assert done.result is not None
    assert done.result.done == (f"update:{ORDERS}",)


@pytest.mark.parametrize("what", ["folder", "missing", "fifo-like", "huge"])
def test_what_cannot_be_read_as_a_plan_is_one_sentence_and_a_way_on(bench: Bench, what: str) -> None:
    path = bench.folder / "p.json"
    match what:
        case "folder":
            path.mkdir()
        case "fifo-like":
            path.symlink_to("/dev/zero")
        case "huge":
            with path.open("wb") as file:
                file.write(b"{")
                file.truncate(1 << 31)
        case _:
            pass
    with pytest.raises(UserError) as caught:
        bench.apply(options=FILE)
    assert "plan --out" in caught.value.hint
    assert "\n" not in caught.value.message


def test_what_somebody_else_did_of_the_plan_to_what_is_ours_is_no_longer_needed(applied: Bench) -> None:
    saved(applied)
    alter(applied, 3)
    done = applied.apply(options=FILE)
    assert done.verdict is None
    assert done.skipped == (f"update:{ORDERS}",)
    assert done.result is not None
    assert done.result.done == (f"adopt:{ORDERS}",)
    assert applied.plan().plan.is_empty


def test_what_only_the_record_would_learn_beside_it_and_nobody_approved_is_more(applied: Bench) -> None:
    saved(applied)
    retention(applied, "{retention.ms: 3d}, protect: true")
    alter(applied, 3)
    (found,) = refused(applied).held.difference.more
    assert (found.id, found.instead_of) == (f"adopt:{ORDERS}", (f"update:{ORDERS}",))


def test_what_was_approved_for_the_record_stays_approved_where_the_rest_was_done_by_somebody_else(
    applied: Bench,
) -> None:
    saved(applied, "{retention.ms: 3d}, protect: true")
    alter(applied, 3)
    done = applied.apply(options=FILE)
    assert (done.verdict, done.skipped) == (None, (f"update:{ORDERS}",))


# What a killed run left in doubt is neither drift nor pending, until the next apply has settled it.


ADDRESS = TOPIC.removeprefix("create:")
LEASE_S = 90


def kinds(bench: Bench, select: Select | None = None) -> list[tuple[str, str]]:
    return [(found.kind, found.address) for found in drift(bench.invocation, select or Select()).findings]


def let_its_lease_grow_old(bench: Bench) -> None:
    """Let the last beat of the killed run be longer ago than a lease lasts."""
    then = time.time() - LEASE_S - 60
    os.utime(bench.folder / ".reconciler/lockfile.json", (then, then))


@pytest.mark.thorough
def test_while_a_lease_is_young_nobody_can_tell_and_that_is_said(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    assert kinds(bench) == [("pending", ADDRESS)]
    assert "bob@laptop" in bench.warned[-1]
    assert "run dead-run" in bench.warned[-1]


def test_what_a_run_that_beats_no_more_had_begun_is_in_doubt(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    let_its_lease_grow_old(bench)
    found = drift(bench.invocation, Select())
    assert kinds(bench) == [("in doubt", ADDRESS)]
    assert "run dead-run of bob@laptop began to create it" in found.findings[0].message
    assert isinstance(found.verdict, DriftError)
    assert "1 in doubt" in found.verdict.message


def test_a_free_lease_and_an_open_run_mean_doubt_whatever_the_cluster_says(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    create_topic(bench)
    bench.write("manifests/more.yaml", MORE)
    assert kinds(bench) == [("in doubt", ADDRESS), ("pending", "topic/west/shop:more")]
    assert kinds(bench, Select(excludes=("*orders",))) == [("pending", "topic/west/shop:more")]
    assert bench.apply().verdict is None
    assert kinds(bench) == []


def test_doubt_has_a_fingerprint_and_is_told_once(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    known = bench.folder / "known.json"
    first = drift(bench.invocation, Select(), known=known)
    first.record_shown()
    again = drift(bench.invocation, Select(), known=known)
    assert (len(first.failing), again.findings, again.verdict) == (1, (), None)


def test_what_is_in_doubt_is_not_accepted(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    found = accept(bench.invocation, Select(), [ADDRESS])
    assert found.patch == ""
    assert "`reconciler apply` settles it" in found.notes[0]


RUN = ".reconciler/runs/the-dead-run"


def break_its_files(bench: Bench, what: str) -> None:
    """Lose what tells what the killed run did."""
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    if what == "run.json":
        (bench.folder / RUN / "run.json").unlink()
    else:
        pages = sorted((bench.folder / RUN / "journal").iterdir())
        assert len(pages) > 1
        pages[0].unlink()


@pytest.mark.parametrize("what", ["run.json", "journal"])
def test_what_an_open_run_did_and_nobody_can_tell_is_no_reason_to_be_content(bench: Bench, what: str) -> None:
    break_its_files(bench, what)
    found = drift(bench.invocation, Select())
    assert isinstance(found.verdict, UserError)
    assert "run dead-run was left open, and its changes are unknown" in found.verdict.message
    assert "`reconciler state repair`" in found.verdict.hint
    (said,) = DRIFT.build_row(found)["errors"]
    assert "the-dead-run" in said
    assert "`reconciler state repair`" in said
    with pytest.raises(UserError, match="the-dead-run"):
        accept(bench.invocation, Select(), ["*"])


def test_while_it_goes_on_its_files_are_on_their_way(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    (bench.folder / RUN / "run.json").unlink()
    assert drift(bench.invocation, Select()).unreadable is None
    let_its_lease_grow_old(bench)
    assert drift(bench.invocation, Select()).unreadable is not None


def test_what_is_in_doubt_alone_is_settled_not_set_back(bench: Bench) -> None:
    die_at(bench, "ActionStarted", TOPIC)
    unlock(bench)
    verdict = drift(bench.invocation, Select()).verdict
    assert verdict is not None
    assert verdict.hint.endswith(": reconciler apply")
