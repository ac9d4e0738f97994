"""Each command acts with broken files, without a workspace, without a state, and leaves other clusters alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cli.emergencies.ways import OF_LINKS, OF_MIRRORS, OF_MOUNTS, OF_NAMESPACES, OF_TOPICS, WAYS, Case

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cli.emergencies.ways import Bench, Command
    from tests.cli.sample_workspaces import Shop, Twins

CASES = [
    pytest.param(case, id=f"{noun}: {case.name}")
    for noun, cases in (
        ("mirror", OF_MIRRORS),
        ("link", OF_LINKS),
        ("topic", OF_TOPICS),
        ("namespace", OF_NAMESPACES),
    )
    for case in cases
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("case", CASES)
def test_a_command_acts_whatever_of_its_workspace_is_gone(
    twins: Twins, case: Case, way: Callable[[Bench], Command]
) -> None:
    for command in case.prepare:
        twins.said(*command)
    assert case.shows(twins) == case.before
    done = twins.typed(*case.typed, *way(twins))
    assert (done.code, case.shows(twins)) == (0, case.after), done.err


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("case", OF_MOUNTS, ids=lambda case: case.name)
def test_a_topic_is_mounted_and_unmounted_whatever_of_its_workspace_is_gone(
    shop: Shop, case: Case, way: Callable[[Bench], Command]
) -> None:
    for command in case.prepare:
        shop.said(*command)
    assert case.shows(shop) == case.before
    done = shop.typed(*case.typed, *way(shop))
    assert (done.code, case.shows(shop)) == (0, case.after), done.err
