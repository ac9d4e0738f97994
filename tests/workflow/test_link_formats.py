"""Clusters that keep their records in different ways are not linked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from tests.workflow.linkedshop import CLUSTER, TOPIC, want

if TYPE_CHECKING:
    from conftest import Bench


@pytest.fixture
def two(bench: Bench) -> Bench:
    """Two clusters, and a topic on one of them."""
    for name in ("west", "east"):
        bench.write(f"manifests/{name}.yaml", CLUSTER.replace("NAME", name))
    bench.write("manifests/orders.yaml", TOPIC)
    assert bench.apply().verdict is None
    return bench


def say_format(bench: Bench, cluster: str, version: int) -> None:
    """Let a cluster be of another major format, as its own file says."""
    file = bench.folder / ".clusters" / cluster / "cluster.json"
    said = file.read_text()
    assert "reconciler.cluster/1" in said
    file.write_text(said.replace("reconciler.cluster/1", f"reconciler.cluster/{version}"))


@pytest.mark.parametrize(
    ("older", "said"), [("west", "of format 1 and west of 0"), ("east", "of format 0 and west of 1")]
)
def test_clusters_of_two_major_formats_are_refused_at_plan(two: Bench, older: str, said: str) -> None:
    want(two, "mirroring", "destination")
    assert not two.plan().plan.errors
    say_format(two, older, 0)
    (error,) = two.plan().plan.errors
    assert error.message == f"east is {said}: records are copied as they are, so both have to be of one"
    assert error.hint == "Upgrade the older of the two first."


def test_a_source_of_a_newer_format_than_is_known_is_refused_at_plan(two: Bench) -> None:
    want(two, "mirroring", "destination")
    say_format(two, "west", 2)
    with pytest.raises(UserError, match="newer format"):
        two.plan()
