"""A topic that lies detached: what is said of it where somebody looks for it, and how to have it back."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from reconciler.cli.text.inventory_text import explain_text, show_text
from reconciler.cli.text.lines import text_of
from reconciler.errors import UserError
from reconciler.operations.clusters.consume import ConsumeOptions, ProduceOptions, consume, produce
from reconciler.operations.clusters.topics import describe_topic
from reconciler.operations.show import explain, show
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from tests.embedded.tiered.tiered_cluster import BOTH
from tests.operations.stage import MountShop, cluster, ids_of, mounting, topic

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = "topic/west/shop:orders"


@pytest.fixture
def shop(bench: Bench) -> MountShop:
    shop = MountShop(bench)
    (bench.folder / "manifests" / "west.yaml").unlink()
    shop.apply(clusters=cluster("west"), orders=topic("orders", "west"))
    return shop


def _consume(bench: Bench, address: str) -> None:
    consume(
        SiteOptions(invocation=bench.invocation, select=Select()),
        address,
        ConsumeOptions(),
        stdout=io.BytesIO(),
        stop=bench.stop,
    )


def _produce(bench: Bench, address: str) -> None:
    options = ProduceOptions(input_format="values")
    produce(
        SiteOptions(invocation=bench.invocation, select=Select()),
        address,
        options,
        stdin=io.BytesIO(b"v\n"),
        report=lambda *_: None,
    )


def _describe(bench: Bench, address: str) -> None:
    describe_topic(SiteOptions(invocation=bench.invocation, select=Select()), address)


LOOKING = pytest.mark.parametrize("look", [_consume, _produce, _describe])


@LOOKING
def test_who_looks_for_a_topic_that_sleeps_is_told_where_and_what_wakes_it(
    shop: MountShop, look: Callable[[Bench, str], None]
) -> None:
    location = shop.location()
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    with pytest.raises(UserError) as raised:
        look(shop.bench, ORDERS)
    assert raised.value.message == f"{ORDERS} lies detached at {location} by mounting/west/shop:orders"
    assert raised.value.hint == "To have it back: state: mounted in mounting/west/shop:orders, and reconciler apply"


def test_who_looks_for_a_topic_that_somebody_unmounted_by_hand_is_told_the_same(shop: MountShop) -> None:
    location, mounts = shop.location(), shop.opened("west").mounts
    mounts.drive(mounts.unmount("shop:orders"))
    with pytest.raises(UserError) as raised:
        _consume(shop.bench, ORDERS)
    assert raised.value.message == f"{ORDERS} lies detached at {location}"
    assert raised.value.hint == (
        f"To have it back: declare a Mounting of shop:orders on west with state: mounted and source: {location}, "
        "and reconciler apply"
    )


def test_who_looks_for_a_topic_that_went_to_another_cluster_is_told_which_and_as_what(shop: MountShop) -> None:
    location = shop.location()
    shop.apply(
        east=cluster("east"),
        sleep=mounting("orders", "west", "unmounted"),
        wake=mounting("orders", "east", "mounted", more=", as: bought"),
    )
    with pytest.raises(UserError) as raised:
        _consume(shop.bench, ORDERS)
    assert raised.value.message == (
        f"{ORDERS} was unmounted to {location} by mounting/west/shop:orders, "
        "and is mounted on cluster east as shop:bought"
    )
    assert raised.value.hint == "Look for it there: topic/east/shop:bought"


def test_a_topic_that_sleeps_is_shown_as_lying_where_it_does_and_agrees_with_nothing(shop: MountShop) -> None:
    location = shop.location()
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    shop.say(orders=topic("orders", "west", partitions=5))
    there = f"unmounted to {location} by mounting/west/shop:orders; compared once it is mounted"
    assert there in text_of(show_text(show(shop.bench.invocation, Select(), ORDERS), one=True))
    text = text_of(explain_text(explain(shop.bench.invocation, Select(), ORDERS)))
    assert there in text
    assert "agree" not in text
    assert text.splitlines()[-1] == "Nothing is planned: it is unmounted, and compared once it is mounted."


def test_a_topic_that_is_there_is_shown_as_before(shop: MountShop) -> None:
    shop.apply(sleep=mounting("orders", "west", "mounted"))
    text = text_of(explain_text(explain(shop.bench.invocation, Select(), ORDERS)))
    assert "unmounted" not in text
    assert text.splitlines()[-1] == "Nothing is planned: files, state and cluster agree."


def _taken(shop: MountShop, configs: dict[str, str]) -> None:
    """Create another topic under the name of the unmounted one, with one record."""
    west = shop.opened("west")
    west.create_topic("shop:orders", partitions=1, configs=configs)
    with west.producer() as producer:
        producer.send("shop:orders", b"stray")


@pytest.mark.parametrize("configs", [{}, BOTH], ids=["never tiered", "tiered"])
def test_another_topic_under_an_unmounted_name_is_neither_archived_nor_mounted_over(
    shop: MountShop, configs: dict[str, str]
) -> None:
    location, before = shop.location(), shop.values()
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    _taken(shop, configs)
    (warning,) = shop.bench.plan().plan.warnings
    assert warning.message.startswith("another topic has its name on cluster west: 1 record, the newest of 20")
    assert warning.hint.startswith(f"Its own topic is at {location}. The other one is neither archived nor deleted.")
    shop.apply()  # Nothing is planned, and the state keeps the location.
    text = text_of(explain_text(explain(shop.bench.invocation, Select(), ORDERS)))
    assert f"unmounted to {location} by mounting/west/shop:orders; another topic has its name" in text
    assert "agree" not in text
    shop.say(sleep=mounting("orders", "west", "mounted"))
    assert "the name is taken" in shop.bench.plan().plan.errors[0].message
    assert shop.values() == [b"stray"]
    shop.apply(orders=None, sleep=mounting("orders", "west", "mounted", more=", as: bought"))
    assert shop.values("shop:bought") == before
    assert shop.values() == [b"stray"]


def test_another_topic_under_a_name_that_a_command_unmounted_is_not_adopted(shop: MountShop) -> None:
    location, mounts = shop.location(), shop.opened("west").mounts
    mounts.drive(mounts.unmount("shop:orders"))
    _taken(shop, {})
    (held,) = shop.bench.plan().plan.held
    why = f"another topic has its name: it was unmounted, and no Mounting says so: it is detached at {location}"
    assert held.message == why
    shop.say(sleep=mounting("orders", "west", "unmounted"))
    planned = shop.bench.plan().plan
    assert planned.errors == ()
    assert [action.id for action in planned.actions] == ["adopt:mounting/west/shop:orders"]
    shop.apply()
    shop.opened("west").delete_topic("shop:orders")
    shop.apply(sleep=mounting("orders", "west", "mounted"))
    assert shop.location() == location


@pytest.mark.parametrize(
    ("as_", "moved"),
    [(", as: bought", ""), (", movedFrom: 'shop:orders'", "bought")],
    ids=["its topic moves", "its mounting moves"],
)
def test_an_unmounted_topic_is_mounted_under_a_new_name_whatever_has_the_old_one(
    shop: MountShop, as_: str, moved: str
) -> None:
    before = shop.values()
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    _taken(shop, {})
    shop.apply(
        orders=topic("bought", "west", more=', movedFrom: "shop:orders"'),
        sleep=mounting(moved or "orders", "west", "mounted", more=as_),
    )
    assert shop.values("shop:bought") == before
    assert shop.values() == [b"stray"]


def test_an_unmounted_topic_moves_with_its_namespace_whatever_has_its_old_name(shop: MountShop) -> None:
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    _taken(shop, {})
    shop.say(
        clusters=cluster("west").replace("{name: shop, cluster: west}", "{name: store, cluster: west}")
        + "spec: {movedFrom: shop}\n",
        orders=topic("orders", "west").replace("namespace: shop", "namespace: store"),
        sleep=mounting("orders", "west", "mounted", namespace="store"),
    )
    planned = shop.bench.plan()
    assert "mount:mounting/west/store:orders" in ids_of(planned)
    (stays,) = planned.plan.blocked
    assert (stays.id, stays.blocked and stays.blocked.guard) == ("delete:namespace/west/shop", "not_empty")
