"""Mountings and topics that only have their names: no other topic is adopted, mounted or unmounted in their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.operations.test_mount_plans import Shop, cluster, errors_of, ids_of, mounting, topic

if TYPE_CHECKING:
    from conftest import Bench


@pytest.fixture
def shop(bench: Bench) -> Shop:
    shop = Shop(bench)
    shop.apply(west=cluster("west"), east=cluster("east"), orders=topic("orders", "west"))
    return shop


@pytest.mark.parametrize("configs", ["{remote.write: false}", "{remote.write: true, remote.read: true}"])
def test_a_topic_that_sleeps_is_not_taken_for_another_of_its_name_where_it_shall_wake(shop: Shop, configs: str) -> None:
    location = shop.location()
    shop.apply(sleep=mounting("orders", "west", "unmounted"), other=topic("orders", "east", configs=configs))
    shop.say(wake=mounting("orders", "east", "mounted"))
    (said,) = errors_of(shop.bench.plan())
    assert "the name is taken: cluster east has a topic of that name" in said
    shop.apply(wake=mounting("orders", "east", "mounted", more=f', source: "{location}", as: woken'))
    assert shop.location("shop:woken", "east") == location


def test_nor_is_it_while_the_same_plan_unmounts_the_one_that_is_meant(shop: Shop) -> None:
    shop.apply(other=topic("orders", "east"))
    shop.say(sleep=mounting("orders", "west", "unmounted"), wake=mounting("orders", "east", "mounted"))
    (said,) = errors_of(shop.bench.plan())
    assert f"not at {shop.location()}" in said


def test_mountings_whose_aliases_are_crossed_adopt_and_unmount_nothing(shop: Shop) -> None:
    shop.apply(comp=topic("comp", "west"))
    for state in ("mounted", "unmounted"):
        shop.say(
            one=mounting("orders", "west", state, more=", as: comp"),
            two=mounting("comp", "west", state, more=", as: orders"),
        )
        planned = shop.bench.plan()
        assert planned.plan.actions == ()
        assert len(errors_of(planned)) == 2


def test_a_topic_that_was_always_here_is_adopted_by_a_mounting_of_its_name_and_sleeps_later(shop: Shop) -> None:
    shop.apply(keep=mounting("orders", "west", "mounted"))
    shop.say(keep=mounting("orders", "west", "unmounted"))
    assert ids_of(shop.bench.plan()) == ["unmount:mounting/west/shop:orders"]


def test_only_the_topic_whose_location_is_written_is_unmounted(shop: Shop) -> None:
    shop.apply(comp=topic("comp", "west"))
    here, meant = shop.location(), shop.location("shop:comp")
    for source in (meant, here.rpartition("/")[0] + "/999"):
        shop.say(sleep=mounting("orders", "west", "unmounted", more=f', source: "{source}"'))
        (said,) = errors_of(shop.bench.plan())
        assert f"lies at {here}, not at {source}" in said
    shop.apply(sleep=mounting("orders", "west", "unmounted", more=f', source: "{here}"'))
    assert set(shop.opened("west").topics()) == {"shop:comp"}
