"""What commands did to mirrors, and the files do not say yet: no plan undoes it, drift tells it, accepting ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.planning.actions import Adopt
from reconciler.workflow.beginning.invocation import Select
from reconciler.workflow.drift import drift
from reconciler.workflow.linking.asking import ask_mirrors
from tests.workflow.linkedshop import (
    BACK,
    MIRROR,
    mirroring,
    planned,
    produce,
    status,
    take_in,
    values,
    want,
)

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.workflow.linking.readying import Verb


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east` over a link that goes both ways."""
    return mirroring(bench)


def command(shop: Bench, verb: Verb, address: str = MIRROR) -> None:
    """Ask a verb now, as its command does."""
    done = ask_mirrors(shop.acting(f"mirror {verb}"), verb, [address], confirm=lambda _ready: True)
    assert done.verdict is None


def findings(shop: Bench) -> list[tuple[str, str, str]]:
    found = drift(shop.invocation, Select())
    assert found.verdict is None
    assert found.obstacles == ()
    return [(each.kind, each.address, each.message) for each in found.findings]


ROLES: list[tuple[list[tuple[Verb, str]], str]] = [
    ([("pause", MIRROR)], "paused"),
    ([("promote", MIRROR)], "promoted"),
    ([("failover", MIRROR)], "failed-over"),
    ([("reverse-and-start", MIRROR)], "reversed"),
    ([("failover", MIRROR), ("truncate-and-restore", BACK)], "reversed"),
]


@pytest.mark.parametrize(("asked", "role"), ROLES, ids=lambda value: value if isinstance(value, str) else value[-1][0])
def test_what_a_command_did_is_left_told_and_accepted(shop: Bench, asked: list[tuple[Verb, str]], role: str) -> None:
    for verb, address in asked:
        command(shop, verb, address)
    said = f"it was made {role} by a command, and the files still say mirroring"
    assert planned(shop) == []
    assert shop.apply().verdict is None
    assert findings(shop) == [("pending", MIRROR, said)]
    warnings = [(each.message, each.source) for each in shop.plan().plan.warnings if each.address == MIRROR]
    assert warnings == [(f"{said}: it is left as it is", "manifests/link.yaml:8")]
    accepted = take_in(shop, MIRROR)
    assert (accepted.notes, accepted.left_out) == ((), 0)
    assert f"+      state: {role}" in accepted.patch.splitlines()
    # Nothing is left to do but for the record, which learns that the files say it now.
    assert all(isinstance(action, Adopt) for action in shop.plan().plan.actions)
    assert findings(shop) == [("pending", MIRROR, "adopt is planned")]
    assert shop.apply().verdict is None
    assert planned(shop) == []
    assert findings(shop) == []
    # From here on the files have their say again.
    before = status(shop)
    want(shop, "mirroring")
    plan = shop.plan().plan
    assert plan.actions or plan.errors
    assert status(shop) == before


def test_what_a_command_took_back_itself_is_no_news(shop: Bench) -> None:
    command(shop, "pause")
    command(shop, "resume")
    assert planned(shop) == []
    assert findings(shop) == []
    command(shop, "reverse-and-start")
    command(shop, "reverse-and-start", BACK)
    assert planned(shop) == []
    assert findings(shop) == []


def test_files_that_say_something_new_are_followed(shop: Bench) -> None:
    command(shop, "pause")
    produce(shop, "west", "late")
    want(shop, "promoted")
    assert planned(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    assert shop.apply().verdict is None
    assert values(shop, "east")[-1] == "late"
    assert planned(shop) == []


@pytest.mark.fact("F-C-065")
def test_after_a_failover_by_command_everything_goes_on_without_the_source(shop: Bench) -> None:
    (shop.folder / ".clusters/west").rename(shop.folder / "lost")
    command(shop, "failover")
    assert planned(shop) == []
    assert [kind for kind, _, _ in findings(shop)] == ["pending"]
    take_in(shop, MIRROR)
    assert shop.apply().verdict is None
    produce(shop, "east", "its own")
    (shop.folder / "lost").rename(shop.folder / ".clusters/west")
    assert planned(shop) == []
    assert findings(shop) == []


def test_what_was_done_without_the_state_is_found_by_looking(shop: Bench) -> None:
    done = ask_mirrors(shop.acting(no_state=True), "failover", [MIRROR], confirm=lambda _ready: True)
    assert done.verdict is None
    plan = shop.plan().plan
    assert plan.actions == ()
    assert [error.message for error in plan.errors] == ["it is STOPPED and cannot become mirroring"]
    assert take_in(shop, MIRROR).left_out == 0
    assert all(isinstance(action, Adopt) for action in shop.plan().plan.actions)
    assert shop.apply().verdict is None
    assert planned(shop) == []
