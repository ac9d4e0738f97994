"""`state mv` and `state rm`: what is recorded changes, and nothing on any cluster does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from reconciler.errors import StalePlanError, UsageError, UserError
from reconciler.operations.state_edit import RecordEdit, state_mv, state_rm
from reconciler.operations.state_views import state_history, state_list, state_show
from reconciler.operations.steps.invocation import Select
from tests.operations.stage import BACK, MIRROR, give_roles, mirroring, planned, status, want

if TYPE_CHECKING:
    from conftest import Bench


ORDERS = "topic/west/shop:orders"
SHOP = "namespace/west/shop"
MORE = """\
apiVersion: reconciler/v1
kind: Namespace
metadata: {name: "shop:eu", cluster: west}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: clicks, namespace: "shop:eu", cluster: west}
spec: {partitions: 1, protect: true}
---
apiVersion: reconciler/v1
kind: Topic
metadata: {name: shopping, cluster: west}
spec: {partitions: 1}
"""


@pytest.fixture
def full(applied: Bench) -> Bench:
    """The workspace with a nested namespace, and a topic whose name only begins like one."""
    applied.write("manifests/more.yaml", MORE)
    assert applied.apply().verdict is None
    return applied


def surgery(bench: Bench) -> RecordEdit:
    return RecordEdit(
        invocation=bench.invocation, select=Select(), command="state surgery", lock_timeout_s=5.0, stop=bench.stop
    )


def mv(bench: Bench, before: str, after: str) -> list[tuple[str, str]]:
    return [(move.before, move.after) for move in state_mv(surgery(bench), before, after, confirm=lambda _moves: True)]


def rm(bench: Bench, *patterns: str, recursive: bool = False) -> list[str]:
    return list(state_rm(surgery(bench), patterns, recursive=recursive, confirm=lambda _rows: True))


def addresses(bench: Bench) -> list[str]:
    return list(state_list(bench.invocation, Select()).resources)


def topics(bench: Bench) -> list[str]:
    return sorted(path.name for path in (bench.folder / ".clusters").rglob("*") if path.is_file())


def test_a_topic_is_recorded_under_another_address(applied: Bench) -> None:
    before, there = state_show(applied.invocation, Select(), ORDERS).recorded, topics(applied)
    assert mv(applied, ORDERS, "topic/west/shop:bookings") == [(ORDERS, "topic/west/shop:bookings")]
    after = state_show(applied.invocation, Select(), "topic/west/shop:bookings").recorded
    assert (after.incarnation, after.physical_name, after.ownership) == (
        before.incarnation,
        before.physical_name,
        "created",
    )
    assert after.resource.to_json()["metadata"]["name"] == "bookings"
    assert addresses(applied) == ["cluster/west", SHOP, "topic/west/shop:bookings"]
    assert topics(applied) == there
    assert state_history(applied.invocation, Select()).rows[0].command == "state surgery"


def test_moving_back_leaves_nothing_to_plan(full: Bench) -> None:
    mv(full, SHOP, "namespace/west/store")
    mv(full, "namespace/west/store", SHOP)
    assert full.plan().plan.is_empty


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (ORDERS, "namespace/west/orders", "is a topic, and namespace/west/orders a namespace"),
        (ORDERS, "topic/east/shop:orders", "lives on cluster west, and topic/east/shop:orders on east"),
        (ORDERS, ORDERS, "is topic/west/shop:orders itself"),
        (SHOP, "namespace/west/shop:eu", "or in it"),
        ("cluster/west", "cluster/east", "a cluster keeps its address"),
        ("link/west/from-east", "link/west/other", "a link keeps its address"),
    ],
)
def test_an_address_that_cannot_be_the_other_is_refused(full: Bench, before: str, after: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        mv(full, before, after)


@pytest.mark.parametrize("command", [lambda bench: rm(bench, ORDERS), lambda bench: mv(bench, ORDERS, ORDERS + "-2")])
def test_before_anything_is_applied_there_is_nothing_to_change(
    bench: Bench, command: Callable[[Bench], object]
) -> None:
    with pytest.raises(UserError, match="holds no state yet"):
        command(bench)
    assert not (bench.folder / ".reconciler/lockfile.json").exists()


def test_what_changed_while_it_was_confirmed_is_not_done(applied: Bench) -> None:
    def confirm(_moves: object) -> bool:
        rm(applied, ORDERS)
        applied.apply()
        path = applied.folder / "manifests/orders.yaml"
        path.write_text(path.read_text().replace("7d", "9d"))
        return applied.apply().verdict is None

    with pytest.raises(StalePlanError, match="has changed since it was shown"):
        state_mv(surgery(applied), ORDERS, "topic/west/shop:bookings", confirm=confirm)
    assert ORDERS in addresses(applied)


# `state mv` and `state rm` of mirrors and their links: what they were is found again, and nothing is touched.


LINK = "link/east/dr"


@pytest.fixture
def shop(bench: Bench) -> Bench:
    return mirroring(bench)


def mirror_surgery(shop: Bench) -> RecordEdit:
    return RecordEdit(
        invocation=shop.invocation, select=Select(), command="state rm", lock_timeout_s=5.0, stop=shop.stop
    )


def rm_mirror(shop: Bench, *patterns: str, recursive: bool = False) -> list[str]:
    return list(state_rm(mirror_surgery(shop), patterns, recursive=recursive, confirm=lambda _rows: True))


@pytest.mark.parametrize("named", [[MIRROR], [LINK], [MIRROR, LINK, "link/west/dr"]], ids=len)
def test_what_was_forgotten_is_adopted_again_and_mirrors_on(shop: Bench, named: list[str]) -> None:
    assert sorted(rm_mirror(shop, *named)) == sorted(named)
    assert sorted(planned(shop)) == sorted(f"adopt:{address}" for address in named)
    assert shop.apply().verdict is None
    assert (planned(shop), status(shop)) == ([], "ACTIVE")


@pytest.mark.parametrize("role", ["failed-over", "promoted", "reversed"])
def test_a_mirror_is_adopted_in_the_role_it_has(shop: Bench, role: str) -> None:
    want(shop, role)
    assert shop.apply(Select(allow=(f"failover:{MIRROR}",))).verdict is None
    rm_mirror(shop, MIRROR)
    assert f"adopt:{MIRROR}" in planned(shop)
    assert shop.apply().verdict is None
    assert (planned(shop), status(shop)) == ([], "STOPPED")


def test_one_that_a_command_failed_over_stays_so_when_it_is_forgotten(shop: Bench) -> None:
    assert give_roles(shop.acting(), "failover", MIRROR).verdict is None
    rm_mirror(shop, MIRROR)
    assert shop.apply().verdict is None
    assert (planned(shop), status(shop)) == ([], "STOPPED")


@pytest.mark.parametrize("other", ["mirror/east/shop:other", BACK])
def test_a_mirror_keeps_the_name_that_its_link_makes_of_its_source(shop: Bench, other: str) -> None:
    with pytest.raises(UsageError):
        state_mv(mirror_surgery(shop), MIRROR, other, confirm=lambda _moves: True)
    assert planned(shop) == []
