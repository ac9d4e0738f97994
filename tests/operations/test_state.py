from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.state_edit import state_repair
from reconciler.operations.state_views import state_history, state_list, state_show
from reconciler.operations.steps.invocation import Select
from reconciler.state.repair import Repair, RepairChoice
from tests.embedded.deaths import opened
from tests.operations.test_crash import (
    CLUSTER,
    NAMESPACE,
    TOPIC,
    create_topic,
    die_at,
    lockfile_of,
    recorded_in,
    unlock,
)

if TYPE_CHECKING:
    from conftest import Bench


def test_before_anything_is_applied_there_is_no_state(bench: Bench) -> None:
    listing = state_list(bench.invocation, Select())
    assert (listing.lineage, listing.serial, listing.resources) == (None, 0, {})
    assert state_history(bench.invocation, Select()).rows == ()
    with pytest.raises(UserError, match="not recorded"):
        state_show(bench.invocation, Select(), "topic/west/shop:orders")


def test_what_is_owned_is_listed_and_shown(applied: Bench) -> None:
    listing = state_list(applied.invocation, Select())
    assert list(listing.resources) == ["cluster/west", "namespace/west/shop", "topic/west/shop:orders"]
    assert listing.serial == 1
    recorded = state_show(applied.invocation, Select(), "topic/west/shop:orders").recorded
    assert (recorded.ownership, recorded.run) == ("created", "019a0000-0000-7000-8000-000000000001")


def test_history_says_which_run_made_each_state(applied: Bench) -> None:
    path = applied.folder / "manifests/orders.yaml"
    path.write_text(path.read_text().replace("7d", "9d"))
    applied.with_(git_commit=lambda _folder: "1f2e9ab").apply()
    newest, oldest = state_history(applied.invocation, Select()).rows
    assert (newest.serial, newest.is_current, newest.command, newest.git_commit) == (2, True, "apply", "1f2e9ab")
    assert (oldest.serial, oldest.is_current, oldest.who, oldest.git_commit) == (1, False, "anna@build-7", None)


def test_history_outlives_the_files_of_its_runs(applied: Bench) -> None:
    for path in (applied.folder / ".reconciler/runs").rglob("*.json"):
        path.unlink()
    (row,) = state_history(applied.invocation, Select()).rows
    assert (row.serial, row.run, row.command) == (1, "019a0000-0000-7000-8000-000000000001", None)


def test_history_says_where_the_current_state_is_missing(applied: Bench) -> None:
    (current,) = (applied.folder / ".reconciler/state").iterdir()
    current.unlink()
    assert state_history(applied.invocation, Select()).rows == ()
    (said,) = applied.warned
    assert f"state/{current.name} is missing, and the lockfile names it: it is the current state" in said
    assert said.endswith("Repair it with: reconciler state repair")


@pytest.mark.parametrize("manifests", [{}, {"broken.yaml": "kind: [\n"}], ids=["gone", "broken"])
def test_the_state_answers_while_manifests_are_not_there_or_broken(applied: Bench, manifests: dict[str, str]) -> None:
    for path in (applied.folder / "manifests").iterdir():
        path.unlink()
    for name, text in manifests.items():
        (applied.folder / "manifests" / name).write_text(text)
    assert len(state_list(applied.invocation, Select()).resources) == 3
    assert len(state_history(applied.invocation, Select()).rows) == 1


# A run is really killed, then its state is really damaged: what is repaired converges with the next apply.


OWNED = {"cluster/west", "namespace/west/shop", "topic/west/shop:orders"}


def repair(bench: Bench, choice: RepairChoice | None = None) -> Repair:
    repaired = state_repair(bench.invocation, Select(), choice or RepairChoice(), confirm=lambda _repair: True)
    assert repaired.repair is not None
    return repaired.repair


def lockfile(bench: Bench) -> Path:
    return bench.folder / ".reconciler/lockfile.json"


def journal(bench: Bench) -> list[Path]:
    return sorted((bench.folder / ".reconciler/runs/the-dead-run/journal").iterdir())


@pytest.mark.parametrize("cut", [True, False], ids=["cut", "deleted"])
@pytest.mark.parametrize(
    ("event", "action"), [("ActionDone", CLUSTER), ("ActionDone", NAMESPACE), ("ActionStarted", TOPIC)]
)
def test_a_killed_run_whose_lockfile_is_lost_is_settled_by_the_next_apply(
    bench: Bench,
    event: str,
    action: str,
    cut: bool,  # noqa: FBT001 - a case
) -> None:
    die_at(bench, event, action)
    if action == TOPIC:
        create_topic(bench)
    lockfile(bench).write_bytes(lockfile(bench).read_bytes()[:50]) if cut else lockfile(bench).unlink()
    found = repair(bench)
    assert found.lockfile.open_run is not None
    assert found.lockfile.open_run.run == "the-dead-run"
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty
    record = recorded_in(bench)
    assert set(record) == OWNED
    assert {recorded.ownership for recorded in record.values()} == {"created"}
    assert lockfile_of(bench).open_run is None


def test_a_hole_in_the_journal_stops_the_next_apply_until_the_run_is_given_up(bench: Bench) -> None:
    die_at(bench, "ActionDone", NAMESPACE)
    journal(bench)[0].unlink()
    lockfile(bench).unlink()
    with pytest.raises(UserError, match=r"000001\.json is missing.*state repair --without-run dead-run"):
        repair(bench)
    found = repair(bench, RepairChoice(without_run="the-dead-run"))
    assert [file.run for file in found.forgotten] == ["the-dead-run"]
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty
    assert set(recorded_in(bench)) == OWNED
    assert recorded_in(bench)["cluster/west"].ownership == "adopted"


@pytest.mark.parametrize("lost", [1, 2, 6])
def test_a_journal_that_lost_its_end_and_never_said_so_costs_no_more_than_who_made_it(bench: Bench, lost: int) -> None:
    die_at(bench, "ActionDone", TOPIC)
    cluster = opened(DirectoryStore(bench.folder / ".clusters/west"))
    before = cluster.topics()
    pages = journal(bench)
    assert len(pages) == 6, "an intent and an end for each of three actions"
    for page in pages[-lost:]:
        page.unlink()
    unlock(bench)
    assert bench.apply().verdict is None
    assert bench.plan().plan.is_empty
    assert cluster.topics() == before, "nothing was done twice"
    record = recorded_in(bench)
    assert set(record) == OWNED
    made = {"created"} if lost == 1 else {"created", "adopted"} if lost == 2 else {"adopted"}
    assert {recorded.ownership for recorded in record.values()} == made


def test_a_state_of_another_environment_is_not_repaired(applied: Bench) -> None:
    lockfile(applied).unlink()
    text = (applied.folder / "reconciler.yaml").read_text()
    (applied.folder / "reconciler.yaml").write_text(text.replace("name: shop", "name: pay"))
    with pytest.raises(UserError, match="holds the state of workspace 'shop', not of workspace 'pay'"):
        repair(applied)
