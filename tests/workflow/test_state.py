from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.operations.state_views import state_history, state_list, state_show
from reconciler.operations.steps.invocation import Select

if TYPE_CHECKING:
    from conftest import Bench


def test_before_anything_is_applied_there_is_no_state(bench: Bench) -> None:
    listing = state_list(bench.invocation, Select())
    assert (listing.lineage, listing.serial, listing.rows) == (None, 0, ())
    assert state_history(bench.invocation, Select()).rows == ()
    with pytest.raises(UserError, match="not recorded"):
        state_show(bench.invocation, Select(), "topic/west/shop:orders")


def test_what_is_owned_is_listed_and_shown(applied: Bench) -> None:
    listing = state_list(applied.invocation, Select())
    assert [address for address, _ in listing.rows] == ["cluster/west", "namespace/west/shop", "topic/west/shop:orders"]
    assert listing.serial == 1
    recorded = state_show(applied.invocation, Select(), "topic/west/shop:orders")
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


@pytest.mark.parametrize("manifests", [{}, {"broken.yaml": "kind: [\n"}], ids=["gone", "broken"])
def test_the_state_answers_while_manifests_are_not_there_or_broken(applied: Bench, manifests: dict[str, str]) -> None:
    for path in (applied.folder / "manifests").iterdir():
        path.unlink()
    for name, text in manifests.items():
        (applied.folder / "manifests" / name).write_text(text)
    assert len(state_list(applied.invocation, Select()).rows) == 3
    assert len(state_history(applied.invocation, Select()).rows) == 1
