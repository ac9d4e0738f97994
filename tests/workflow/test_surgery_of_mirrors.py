"""`state mv` and `state rm` of mirrors and their links: what they were is found again, and nothing is touched."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UsageError
from reconciler.operations.mirrors.mirror_commands import ask_mirrors
from reconciler.operations.state_edit import Surgery, state_mv, state_rm
from reconciler.operations.steps.invocation import Select
from tests.workflow.linkedshop import BACK, MIRROR, mirroring, planned, status, want

if TYPE_CHECKING:
    from conftest import Bench

LINK = "link/east/dr"


@pytest.fixture
def shop(bench: Bench) -> Bench:
    return mirroring(bench)


def surgery(shop: Bench) -> Surgery:
    return Surgery(invocation=shop.invocation, select=Select(), command="state rm", lock_timeout_s=5.0, stop=shop.stop)


def rm(shop: Bench, *patterns: str, recursive: bool = False) -> list[str]:
    return list(state_rm(surgery(shop), patterns, recursive=recursive, confirm=lambda _rows: True))


@pytest.mark.parametrize("named", [[MIRROR], [LINK], [MIRROR, LINK, "link/west/dr"]], ids=len)
def test_what_was_forgotten_is_adopted_again_and_mirrors_on(shop: Bench, named: list[str]) -> None:
    assert sorted(rm(shop, *named)) == sorted(named)
    assert sorted(planned(shop)) == sorted(f"adopt:{address}" for address in named)
    assert shop.apply().verdict is None
    assert (planned(shop), status(shop)) == ([], "ACTIVE")


@pytest.mark.parametrize("role", ["failed-over", "promoted", "reversed"])
def test_a_mirror_is_adopted_in_the_role_it_has(shop: Bench, role: str) -> None:
    want(shop, role)
    assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
    rm(shop, MIRROR)
    assert f"adopt:{MIRROR}" in planned(shop)
    assert shop.apply().verdict is None
    assert (planned(shop), status(shop)) == ([], "STOPPED")


def test_one_that_a_command_failed_over_stays_so_when_it_is_forgotten(shop: Bench) -> None:
    assert ask_mirrors(shop.acting(), "failover", [MIRROR], confirm=lambda _ready: True).verdict is None
    rm(shop, MIRROR)
    assert shop.apply().verdict is None
    assert (planned(shop), status(shop)) == ([], "STOPPED")


@pytest.mark.parametrize("other", ["mirror/east/shop:other", BACK])
def test_a_mirror_keeps_the_name_that_its_link_makes_of_its_source(shop: Bench, other: str) -> None:
    with pytest.raises(UsageError):
        state_mv(surgery(shop), MIRROR, other, confirm=lambda _moves: True)
    assert planned(shop) == []
