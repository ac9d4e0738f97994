"""Roles of a mirror brought about by apply, from the files to the records, and what the next plan says of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone
from reconciler.errors import BlockedError, UserError
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.plan import BlockedPlanError
from reconciler.operations.steps.invocation import Select
from tests.embedded.links.linked import Linked, mirrored
from tests.operations.stage import (
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

    from reconciler.resources.mirrors import MirrorSeen


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


@pytest.mark.parametrize("is_away", [False, True], ids=["which-answers", "which-does-not"])
def test_a_run_that_does_not_know_the_source_says_so_and_marks_nothing_for_those_who_do(
    shop: Bench, *, is_away: bool
) -> None:
    if is_away:
        (shop.folder / ".clusters/west").rename(shop.folder / "away")
        upkeep(shop)
    before = opened(shop, "east").catalog.read().links["dr"]
    assert (before.trouble is not None) == is_away
    for name in ("west", "orders", "link"):
        (shop.folder / f"manifests/{name}.yaml").unlink()
    found = upkeep(shop)
    assert f"{MIRROR}, link:east" in str(found.verdict)
    assert status(shop) == "ACTIVE"
    assert opened(shop, "east").catalog.read().links["dr"] == before


# Transitions of mirrors over two clusters: promote, fail over, reverse, restore, and failing back.


@pytest.fixture
def linked() -> Linked:
    return mirrored()


def refused_writes(linked: Linked, cluster: str) -> bool:
    with pytest.raises(UserError, match="Cannot append records to read-only mirror topic"):
        linked.produce(cluster, "no")
    return True


def test_a_reversal_copies_what_it_can_before_it_shuts_anybody_out(linked: Linked) -> None:
    linked.produce("west", "late")

    def cannot(_mirror: MirrorSeen, _ends: Mapping[int, int] | None) -> None:
        raise UserError("Data jobs run on Spark, which needs Java 17 or newer", hint="Install it.")

    with pytest.raises(UserError, match="Java"):
        replace(linked.driver(), copy=cannot).reverse("east", ORDERS)
    assert linked.status("east") == "ACTIVE"
    linked.produce("west", "later")
    assert linked.driver().reverse("east", ORDERS).status == "ACTIVE"
    assert [value for _, value in linked.read("east")][-2:] == ["late", "later"]


@pytest.mark.fact("F-C-078", "F-C-079")
def test_after_a_promotion_the_source_is_cut_to_where_the_two_parted_and_mirrors(linked: Linked) -> None:
    linked.driver().promote("east", ORDERS)
    linked.produce("east", "own", "own too")
    linked.produce("west", "parted")
    seen, cut = linked.driver().restore("west", ORDERS)
    assert (seen.cluster, seen.status, seen.source_cluster) == ("west", "ACTIVE", "east")
    assert {partition: (one.offset, one.records) for partition, one in cut.items()} == {0: (10, 1)}
    linked.catch_up("west")
    assert linked.read("west") == linked.read("east")
    assert refused_writes(linked, "west")


@pytest.mark.fact("F-C-073")
@pytest.mark.parametrize(
    ("own", "other", "copied", "why"),
    [
        ({"prefix": "w."}, {}, "shop:w.orders", "link dr of cluster east has the prefix w."),
        ({}, {"prefix": "e."}, ORDERS, "link dr of cluster west has the prefix e."),
        ({}, {"mode": "destination"}, ORDERS, "link dr of cluster west is not bidirectional"),
        ({}, {"source": "south"}, ORDERS, "link dr has no half on cluster west"),
    ],
)
def test_roles_never_begin_to_change_over_a_link_that_cannot_bring_them_back(
    own: dict[str, str], other: dict[str, str], copied: str, why: str
) -> None:
    linked = Linked()
    linked.west.create_topic(ORDERS)
    linked.half("east", "west", **own)
    linked.half("west", **{"there": "east", **other})
    linked.mirror("east", "west", name=copied)
    with pytest.raises(UserError, match=f"mirror {copied} cannot be reversed: {why}"):
        linked.driver().reverse("east", copied)
    linked.catch_up("east", copied)
    linked.produce("west", "as ever")
    linked.provider("east").links.ask(copied, "failover")
    with pytest.raises(UserError, match="cannot be restored"):
        linked.driver().restore("west", ORDERS)
    linked.produce("west", "still")
    assert [value for _, value in linked.read("west")] == ["as ever", "still"]


@pytest.mark.fact("F-C-078")
@pytest.mark.parametrize("place", ["east", "west"])
def test_a_restore_runs_on_the_original_source_of_a_stopped_mirror_and_nowhere_else(linked: Linked, place: str) -> None:
    if place == "east":
        linked.driver().promote("east", ORDERS)  # It is the mirror that was stopped, not its source.
    with pytest.raises(UserError):
        linked.driver().restore(place, ORDERS)
    assert linked.status("east") == ("STOPPED" if place == "east" else "ACTIVE")
    assert len(linked.read(place)) == 10
