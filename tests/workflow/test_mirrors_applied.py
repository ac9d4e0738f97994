"""Roles of a mirror brought about by apply, from the files to the records, and what the next plan says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone
from reconciler.embedded.segments.groups import commit_offsets, existing_group
from reconciler.errors import BlockedError, UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.plan import BlockedPlanError
from reconciler.operations.steps.invocation import Select
from tests.embedded.samples import NOW
from tests.workflow.linkedshop import (
    BACK,
    COPY,
    LINK,
    MIRROR,
    ORDERS,
    TOPIC,
    mirroring,
    opened,
    planned,
    produce,
    status,
    upkeep,
    values,
    want,
)

if TYPE_CHECKING:
    from conftest import Bench

OLD = [f"a{number}" for number in range(5)]


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, mirrored to `east` over a link that goes both ways."""
    return mirroring(bench)


def applied(shop: Bench, *allow: str) -> list[str]:
    """Apply what is declared, and return what was done; nothing is left to do after it."""
    done = shop.apply(Select(allow=allow))
    assert done.verdict is None
    assert planned(shop) == []
    return list(done.result.done) if done.result else []


@pytest.mark.fact("F-C-063")
def test_a_promotion_waits_until_nothing_lags_and_frees_a_topic_with_all_records(shop: Bench) -> None:
    produce(shop, "west", "late")
    want(shop, "promoted")
    assert applied(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    copied = {event.id: event.records for event in shop.events if isinstance(event, ActionDone)}
    assert (copied[f"catch-up:{MIRROR}"], copied[f"promote:{MIRROR}"]) == (1, 0)
    assert (status(shop), values(shop, "east")) == ("STOPPED", [*OLD, "late"])
    produce(shop, "east", "its own")
    assert values(shop, "east")[-1] == "its own"
    assert "its own" not in values(shop, "west")


def test_the_topic_it_becomes_is_owned_by_the_same_run(shop: Bench) -> None:
    want(shop, "promoted")
    shop.write("manifests/copy.yaml", TOPIC.replace("west", "east"))
    assert applied(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}", f"adopt:{COPY}"]
    (shop.folder / "manifests/link.yaml").unlink()
    assert applied(shop)
    assert opened(shop, "east").catalog.read().links == {}
    assert values(shop, "east") == OLD


@pytest.mark.fact("F-C-063")
def test_a_mirror_whose_lag_does_not_shrink_is_not_promoted_and_the_open_transaction_is_named(shop: Bench) -> None:
    shop.write(
        "manifests/link.yaml",
        LINK.replace("ROLE", "promoted")
        .replace("MODE", "bidirectional")
        .replace("spec:\n", "spec:\n  retryTimeout: 0s\n"),
    )
    with opened(shop, "west").producer(transactional_id="payments") as producer:
        producer.init_transactions()
        producer.begin()
        producer.send(ORDERS, "open", partition=1)
        producer.flush()
        done = shop.apply()
        assert done.result is not None
        (failed,) = done.result.failed
        assert failed.id == f"catch-up:{MIRROR}"
        assert failed.error.message == (
            f"the lag of {MIRROR} does not shrink, for 0 s: partition 1 lacks 1 record: a transaction is open there "
            "since offset 5; nothing was changed"
        )
        assert [each.id for each in done.result.skipped] == [f"promote:{MIRROR}"]
        assert status(shop) == "ACTIVE"
        with pytest.raises(UserError, match="mirror"):
            produce(shop, "east", "refused")
        producer.commit()
    assert applied(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    assert values(shop, "east", 1)[-1] == "open"


@pytest.mark.fact("F-C-061")
def test_a_paused_mirror_takes_nothing_until_it_is_resumed(shop: Bench) -> None:
    want(shop, "paused")
    assert applied(shop) == [f"pause:{MIRROR}"]
    produce(shop, "west", "late")
    upkeep(shop, "mirror")
    assert values(shop, "east") == OLD
    want(shop, "mirroring")
    assert applied(shop) == [f"resume:{MIRROR}"]
    upkeep(shop, "mirror")
    assert values(shop, "east") == [*OLD, "late"]


@pytest.mark.fact("F-C-063")
def test_a_paused_mirror_that_lags_is_promoted_with_all_records(shop: Bench) -> None:
    want(shop, "paused")
    applied(shop)
    produce(shop, "west", "late")
    want(shop, "promoted")
    assert applied(shop) == [f"catch-up:{MIRROR}", f"promote:{MIRROR}"]
    assert values(shop, "east") == [*OLD, "late"]


@pytest.mark.fact("F-C-074", "F-C-075")
def test_roles_are_swapped_there_and_back_and_nothing_is_lost(shop: Bench) -> None:
    produce(shop, "west", "late")
    want(shop, "reversed")
    assert applied(shop) == [f"reverse-and-start:{MIRROR}"]
    assert (status(shop), status(shop, "west")) == ("STOPPED", "ACTIVE")
    produce(shop, "east", "over there")
    assert upkeep(shop, "mirror").verdict is None
    assert values(shop, "west") == values(shop, "east") == [*OLD, "late", "over there"]
    want(shop, "mirroring")
    assert applied(shop) == [f"reverse-and-start:{BACK}"]
    assert (status(shop), status(shop, "west")) == ("ACTIVE", "STOPPED")
    produce(shop, "west", "home")
    upkeep(shop, "mirror")
    assert values(shop, "east") == [*OLD, "late", "over there", "home"]


@pytest.mark.fact("F-C-065", "F-C-079", "F-C-080")
def test_what_failed_over_is_restored_and_brought_home(shop: Bench) -> None:
    produce(shop, "west", "lost")
    want(shop, "failed-over")
    with pytest.raises(BlockedError, match=f"failover:{MIRROR}"):
        shop.apply()
    assert applied(shop, f"failover:{MIRROR}") == [f"failover:{MIRROR}"]
    produce(shop, "east", "since then")
    produce(shop, "west", "where nobody looks")
    want(shop, "reversed")
    assert applied(shop, f"truncate-and-restore:{BACK}") == [f"truncate-and-restore:{BACK}"]
    assert (status(shop), status(shop, "west")) == ("STOPPED", "ACTIVE")
    assert values(shop, "west") == OLD
    upkeep(shop, "mirror")
    assert values(shop, "west") == values(shop, "east") == [*OLD, "since then"]
    want(shop, "mirroring")
    assert applied(shop) == [f"reverse-and-start:{BACK}"]
    assert (status(shop), status(shop, "west")) == ("ACTIVE", "STOPPED")


@pytest.mark.fact("F-C-041")
def test_a_group_is_held_to_where_its_mirror_ends_when_that_fails_over(shop: Bench) -> None:
    east = opened(shop, "east")
    topic = east.topic(ORDERS).id
    commit_offsets(east.store, east.catalog, "readers", {(topic, 0): 3, (topic, 1): 9}, mark="first", now_ms=NOW)
    want(shop, "failed-over")
    applied(shop, f"failover:{MIRROR}")
    readers = existing_group(east.store, "readers")
    assert {place: kept.offset for place, kept in readers.own.items()} == {(topic, 0): 3, (topic, 1): 5}


def test_jobs_left_to_another_leave_the_promotion_to_it_too(shop: Bench) -> None:
    want(shop, "promoted")
    done = shop.apply(options=ApplyOptions(yes=True, leaves_jobs=True))
    assert done.result is not None
    assert done.result.not_started == (f"catch-up:{MIRROR}", f"promote:{MIRROR}")
    assert status(shop) == "ACTIVE"
    assert shop.apply(options=ApplyOptions(yes=True, resumes=True)).verdict is None
    assert status(shop) == "STOPPED"
    assert planned(shop) == []


@pytest.mark.fact("F-C-090")
def test_destroy_takes_mirrors_before_their_link_and_leaves_nothing(shop: Bench) -> None:
    with pytest.raises(BlockedPlanError) as refused:
        shop.destroy(recursive=True)
    blocks = [each.blocked for each in refused.value.planned.plan.blocked]
    allows = tuple(block.allow for block in blocks if block is not None and block.allow is not None)
    done = shop.destroy(Select(allow=allows), recursive=True)
    assert done.verdict is None
    ids = [action.id for action in done.planned.plan.actions]
    assert ids.index(f"delete:{MIRROR}") < ids.index("delete:link/east/dr")
    for name in ("west", "east"):
        catalog = opened(shop, name).catalog.read()
        assert (catalog.links, catalog.topics) == ({}, {})


@pytest.mark.fact("F-C-096")
def test_a_new_mirror_begins_where_its_link_says_and_its_first_copy_is_verified(bench: Bench) -> None:
    shop = mirroring(bench, "destination")
    shop.write(
        "manifests/later.yaml",
        LINK.replace("ROLE", "mirroring")
        .replace("MODE", "destination")
        .replace("{name: dr, ", "{name: later, ")
        .replace("spec:\n", 'spec:\n  prefix: "new."\n  startOffset: latest\n', 1),
    )
    assert applied(shop) == [
        "create:link/east/later",
        "create:mirror/east/shop:new.orders",
        "mirror:mirror/east/shop:new.orders",
    ]
    produce(shop, "west", "late")
    upkeep(shop, "mirror")
    found = opened(shop, "east").consume("shop:new.orders")
    assert [(one.offset, one.value) for one in found] == [(5, b"late")]
