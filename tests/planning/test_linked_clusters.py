"""Which clusters a link may lie between, as their identities say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from reconciler.planning.findings import Finding
from reconciler.resources.inventory import ClusterIdentity
from tests.planning.casefile import Case

ROW = {
    "clusters": ["west", "east"],
    "has_links": True,
    "desired": [{"link": "l", "where": "east", "source": "west"}],
}


def errors(west: ClusterIdentity, east: ClusterIdentity) -> tuple[Finding, ...]:
    world = Case("linked", ROW).world
    recorded = {address: item for address, item in world.recorded.items() if not address.startswith("cluster/")}
    given = replace(world.given, identities={"west": west, "east": east})
    return replace(world, recorded=recorded, given=given).plan().errors


def test_two_names_of_one_cluster_are_not_linked() -> None:
    one = ClusterIdentity("embedded", "one")
    (error,) = errors(one, one)
    assert error.message == "west and east are one cluster (one): no link leads to itself"
    assert error.marks == (("link/east/l", ("spec", "source")),)


@pytest.mark.parametrize(("here", "there", "is_refused"), [("2", "1", True), ("2", "2", False), ("2", None, False)])
def test_clusters_of_two_formats_are_not_linked_where_that_can_be_told(
    here: str, there: str | None, *, is_refused: bool
) -> None:
    found = errors(ClusterIdentity("embedded", "a", there), ClusterIdentity("embedded", "b", here))
    assert [error.message.partition(":")[0] for error in found] == (
        ["east is of format 2 and west of 1"] if is_refused else []
    )
