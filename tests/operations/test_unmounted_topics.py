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
from tests.operations.test_mount_plans import Shop, cluster, mounting, topic

if TYPE_CHECKING:
    from conftest import Bench

ORDERS = "topic/west/shop:orders"


@pytest.fixture
def shop(bench: Bench) -> Shop:
    shop = Shop(bench)
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
    shop: Shop, look: Callable[[Bench, str], None]
) -> None:
    location = shop.location()
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    with pytest.raises(UserError) as raised:
        look(shop.bench, ORDERS)
    assert raised.value.message == f"{ORDERS} lies detached at {location} by mounting/west/shop:orders"
    assert raised.value.hint == "To have it back: state: mounted in mounting/west/shop:orders, and reconciler apply"


def test_who_looks_for_a_topic_that_somebody_unmounted_by_hand_is_told_the_same(shop: Shop) -> None:
    location, mounts = shop.location(), shop.opened("west").mounts
    mounts.drive(mounts.unmount("shop:orders"))
    with pytest.raises(UserError) as raised:
        _consume(shop.bench, ORDERS)
    assert raised.value.message == f"{ORDERS} lies detached at {location}"
    assert raised.value.hint == (
        f"To have it back: declare a Mounting of shop:orders on west with state: mounted and source: {location}, "
        "and reconciler apply"
    )


def test_who_looks_for_a_topic_that_went_to_another_cluster_is_told_which_and_as_what(shop: Shop) -> None:
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


@LOOKING
def test_a_topic_that_never_was_does_not_exist(shop: Shop, look: Callable[[Bench, str], None]) -> None:
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    with pytest.raises(UserError, match="does not exist"):
        look(shop.bench, "topic/west/shop:refunds")


def test_a_topic_that_sleeps_is_shown_as_lying_where_it_does_and_agrees_with_nothing(shop: Shop) -> None:
    location = shop.location()
    shop.apply(sleep=mounting("orders", "west", "unmounted"))
    shop.say(orders=topic("orders", "west", partitions=5))
    there = f"unmounted to {location} by mounting/west/shop:orders; compared once it is mounted"
    assert there in text_of(show_text(show(shop.bench.invocation, Select(), ORDERS), one=True))
    text = text_of(explain_text(explain(shop.bench.invocation, Select(), ORDERS)))
    assert there in text
    assert "agree" not in text
    assert text.splitlines()[-1] == "Nothing is planned: it is unmounted, and compared once it is mounted."


def test_a_topic_that_is_there_is_shown_as_before(shop: Shop) -> None:
    shop.apply(sleep=mounting("orders", "west", "mounted"))
    text = text_of(explain_text(explain(shop.bench.invocation, Select(), ORDERS)))
    assert "unmounted" not in text
    assert text.splitlines()[-1] == "Nothing is planned: files, state and cluster agree."
