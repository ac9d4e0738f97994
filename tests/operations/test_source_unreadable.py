"""A source cluster that is there and cannot be read: what fails over from it is planned as if it were gone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.errors import UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.drift import drift
from reconciler.operations.steps.invocation import Select
from tests.operations.stage import MIRROR, TOPIC, give_roles, mirroring, planned, produce, values, want

if TYPE_CHECKING:
    from conftest import Bench

ALLOWED = Select(allow=(f"failover:{MIRROR}",))


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east`; where `west` says who it is, nobody can read any more."""
    shop = mirroring(bench)
    identity = shop.folder / ".clusters/west/cluster.json"
    identity.rename(shop.folder / "cluster.json")
    identity.mkdir()
    return shop


def mend(shop: Bench) -> None:
    identity = shop.folder / ".clusters/west/cluster.json"
    identity.rmdir()
    (shop.folder / "cluster.json").rename(identity)


def test_while_it_is_mirrored_the_plan_says_which_cluster_and_how_to_go_on_without(shop: Bench) -> None:
    with pytest.raises(UserError, match=r"cannot read cluster west: .*cluster\.json") as caught:
        shop.plan()
    assert caught.value.hint.endswith("To go on without: --exclude '*/west/*'")


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize("by", ["files", "command"])
def test_after_a_failover_the_rest_is_planned_and_told(shop: Bench, by: str) -> None:
    if by == "files":
        want(shop, "failed-over")
        assert shop.apply(ALLOWED, ApplyOptions(yes=True)).verdict is None
    else:
        assert give_roles(shop.acting("mirror failover"), "failover", MIRROR).verdict is None
    shop.write("manifests/more.yaml", TOPIC.replace("orders", "more").replace("west", "east"))
    assert planned(shop) == ["create:topic/east/shop:more"]
    (lost,) = [each for each in shop.plan().plan.warnings if each.address == "cluster/west"]
    assert lost.message.startswith("cluster west cannot be read, and nothing on it is planned: ")
    assert shop.apply().verdict is None
    found = drift(shop.invocation, Select())
    assert [each.kind for each in found.findings] == (["pending"] if by == "command" else [])
    assert found.verdict is not None
    assert found.verdict.message.startswith("cannot read cluster west: ")
    produce(shop, "east", "its own")
    assert values(shop, "east")[-1] == "its own"
    mend(shop)
    assert planned(shop) == []
