"""A run is really killed, then its state is really damaged: what is repaired converges with the next apply."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.state_edit import state_repair
from reconciler.operations.steps.invocation import Select
from reconciler.state.repair import Choice, Repair
from tests.embedded.crashing import opened
from tests.workflow.test_crash import CLUSTER, NAMESPACE, TOPIC, create_topic, die_at, lockfile_of, recorded_in, unlock

if TYPE_CHECKING:
    from conftest import Bench

OWNED = {"cluster/west", "namespace/west/shop", "topic/west/shop:orders"}


def repair(bench: Bench, choice: Choice | None = None) -> Repair:
    repaired = state_repair(bench.invocation, Select(), choice or Choice(), confirm=lambda _repair: True)
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
    with pytest.raises(UserError, match=r"000001\.json is missing.*state repair --without-run the-dead-run"):
        repair(bench)
    found = repair(bench, Choice(without_run="the-dead-run"))
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
