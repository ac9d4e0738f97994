"""What a plan says another role of a mirror costs is what it costs, and no more is done than was approved."""

from __future__ import annotations

import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from reconciler.applying.events import ActionDone
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.directory import DirectoryStore
from reconciler.operations.apply import ApplyOptions
from reconciler.operations.mirrors.mirror_views import MAX_MEASURED_PARTITIONS, describe_mirrors, measure_lags
from reconciler.operations.steps.approval import ChangedPlanError
from reconciler.operations.steps.invocation import Select
from reconciler.operations.steps.runner import SiteOptions
from reconciler.planning.same_or_less import Why
from tests.embedded.samples import NOW
from tests.operations.stage import (
    BACK,
    MIRROR,
    ORDERS,
    give_roles,
    lose,
    mirroring,
    opened,
    produce,
    status,
    upkeep,
    want,
)

if TYPE_CHECKING:
    from conftest import Bench

    from reconciler.planning.actions import Estimate, RoleCost
    from reconciler.planning.orders import RoleVerb

FILE = ApplyOptions(file=Path("p.json"))
FAILOVER = Select(allow=(f"failover:{MIRROR}",))
RESTORE = Select(allow=(f"truncate-and-restore:{BACK}",))

Logs = dict[int, dict[int, str]]
NamedObjects = set[tuple[int, int]]


@pytest.fixture
def shop(bench: Bench) -> Bench:
    """Ten records on `west`, five a partition, mirrored to `east` over a link that goes both ways."""
    return mirroring(bench)


def logs(shop: Bench, cluster: str) -> Logs:
    """Return what can be read, by partition and offset."""
    found: Logs = {0: {}, 1: {}}
    for one in opened(shop, cluster).consume(ORDERS):
        found[one.partition][one.offset] = (one.value or b"").decode()
    return found


def places(found: Logs) -> NamedObjects:
    return {(partition, offset) for partition, log in found.items() for offset in log}


def estimate(shop: Bench, id_: str, select: Select | None = None) -> Estimate:
    """Return what a plan says of one action."""
    plan = shop.plan(select or Select()).plan
    assert not plan.errors, plan.errors
    return next(action.estimate for action in plan.actions if action.id == id_)


def cost(shop: Bench, id_: str) -> RoleCost:
    found = estimate(shop, id_).role
    assert found is not None
    return found


def named(found: RoleCost) -> NamedObjects:
    return {(each.partition, offset) for each in found.lost for offset in range(each.start, each.stop)}


def produce_late(shop: Bench, cluster: str, *amounts: int) -> None:
    for partition, amount in enumerate(amounts):
        produce(shop, cluster, *(f"late {partition}-{number}" for number in range(amount)), partition=partition)


@pytest.mark.fact("F-C-065")
@pytest.mark.parametrize("amounts", [(0, 0), (3, 0), (0, 4), (2, 5)])
def test_what_a_failover_is_said_to_lose_is_exactly_what_is_lost(shop: Bench, amounts: tuple[int, int]) -> None:
    produce_late(shop, "west", *amounts)
    want(shop, "failed-over")
    found = cost(shop, f"failover:{MIRROR}")
    assert (found.lost_offsets, len(named(found))) == (sum(amounts), sum(amounts))
    assert shop.apply(FAILOVER).verdict is None
    source, copy = logs(shop, "west"), logs(shop, "east")
    assert places(source) - places(copy) == named(found)
    assert all(source[partition][offset] == copy[partition][offset] for partition, offset in places(copy))


@pytest.mark.fact("F-C-079")
@pytest.mark.parametrize("amounts", [(0, 0), (3, 0), (2, 5)])
def test_what_a_restore_is_said_to_cut_is_exactly_what_is_cut(shop: Bench, amounts: tuple[int, int]) -> None:
    produce_late(shop, "west", *amounts)
    want(shop, "failed-over")
    assert shop.apply(FAILOVER).verdict is None
    produce(shop, "east", "went on")
    produce_late(shop, "west", 1, 0)  # Divergent records go on being written where nobody told the producers.
    before = logs(shop, "west")
    want(shop, "reversed")
    found = cost(shop, f"truncate-and-restore:{BACK}")
    assert len(named(found)) == sum(amounts) + 1
    assert shop.apply(RESTORE).verdict is None
    upkeep(shop, "mirror")
    after = logs(shop, "west")
    kept = {place for place in places(before) if after[place[0]].get(place[1]) == before[place[0]][place[1]]}
    assert places(before) - kept == named(found)
    assert after == logs(shop, "east")


@pytest.mark.fact("F-C-079")
def test_the_groups_that_a_restore_is_said_to_set_back_are_set_back(shop: Bench) -> None:
    produce_late(shop, "west", 4, 0)
    for group, offset in {"before": 5, "beyond": 8}.items():
        opened(shop, "west").groups.commit(group, {(ORDERS, 0): offset})
    want(shop, "failed-over")
    assert shop.apply(FAILOVER).verdict is None
    want(shop, "reversed")
    assert cost(shop, f"truncate-and-restore:{BACK}").groups_set_back == ("beyond",)
    assert shop.apply(RESTORE).verdict is None
    west = opened(shop, "west")
    assert [west.groups.read_committed_offsets(group, [ORDERS])[ORDERS, 0] for group in ("before", "beyond")] == [5, 5]


@pytest.mark.fact("F-C-063")
def test_what_a_promotion_is_said_to_wait_for_is_what_it_copies(shop: Bench) -> None:
    produce_late(shop, "west", 2, 1)
    want(shop, "promoted")
    found = estimate(shop, f"catch-up:{MIRROR}")
    assert found.role is not None
    assert (found.records, found.role.timeout_ms) == (3, 300_000)
    assert found.bytes > 0
    assert shop.apply().verdict is None
    copied = {event.id: event.records for event in shop.events if isinstance(event, ActionDone)}
    assert copied[f"catch-up:{MIRROR}"] == 3


@pytest.mark.fact("F-C-074")
def test_what_a_reversal_is_said_to_copy_is_not_lost(shop: Bench) -> None:
    produce_late(shop, "west", 0, 2)
    want(shop, "reversed")
    found = cost(shop, f"reverse-and-start:{MIRROR}")
    assert [(each.partition, each.start, each.stop) for each in found.behind] == [(1, 5, 7)]
    assert shop.apply().verdict is None
    assert {1: logs(shop, "east")[1]} == {1: {**logs(shop, "west")[1]}}


@pytest.mark.fact("F-C-065", "F-C-083")
def test_without_its_source_the_last_source_fetch_offsets_are_all_that_is_told(shop: Bench) -> None:
    produce_late(shop, "west", 3, 0)
    lose(shop)
    want(shop, "failed-over")
    found = cost(shop, f"failover:{MIRROR}")
    assert (found.unknown, found.fetched, found.lost) == ("west does not answer", ((0, 4), (1, 4)), ())


def test_a_mirror_that_is_too_large_to_measure_or_gone_since_it_was_listed_keeps_no_other_from_that(
    shop: Bench,
) -> None:
    site = SiteOptions(invocation=shop.invocation, select=Select()).open_site(is_reader=True)
    (seen,) = site.providers["east"].links.list_mirrors()
    large, gone = replace(seen, partitions=MAX_MEASURED_PARTITIONS + 1), replace(seen, name="shop:gone")
    rows = list(measure_lags(site, [large, gone, seen]))
    assert [(row.seen, len(row.partitions)) for row in rows] == [(large, 0), (gone, 0), (seen, 2)]


ANEW: list[tuple[str, RoleVerb, str]] = [
    ("failed-over", "failover", f"failover:{MIRROR}"),
    ("promoted", "promote", f"catch-up:{MIRROR}"),
    ("reversed", "reverse-and-start", f"reverse-and-start:{MIRROR}"),
]


@pytest.mark.fact("F-C-094")
@pytest.mark.parametrize("is_written", [False, True], ids=["empty", "written"])
@pytest.mark.parametrize(("role", "verb", "id_"), ANEW)
def test_nothing_is_measured_against_a_topic_that_was_made_anew(
    shop: Bench, role: str, verb: RoleVerb, id_: str, *, is_written: bool
) -> None:
    upkeep(shop, "mirror")
    opened(shop, "west").delete_topic(ORDERS)
    EmbeddedCluster.open(
        DirectoryStore(shop.folder / ".clusters/west"), now_ms=lambda: NOW, new_id=lambda: str(uuid.uuid4())
    ).create_topic(ORDERS, partitions=2)
    if is_written:
        produce(shop, "west", *map(str, range(5)))
    want(shop, role)
    anew = f"{ORDERS} on west was deleted and created again"
    found = cost(shop, id_)
    assert (found.unknown, found.lost, found.behind) == (anew, (), ())
    ordered = give_roles(shop.acting(), verb, MIRROR, is_dry_run=True).plan.actions[0].estimate.role
    assert ordered is not None
    assert ordered.unknown == anew
    (row,) = describe_mirrors(SiteOptions(invocation=shop.invocation, select=Select()), [MIRROR])
    assert [each.lag for each in row.partitions] == [None, None]


@pytest.mark.parametrize("verb", ["promote", "reverse-and-start"])
def test_what_needs_its_source_does_not_begin_where_another_cluster_lies_there(shop: Bench, verb: RoleVerb) -> None:
    upkeep(shop, "mirror")
    lose(shop)
    store = DirectoryStore(shop.folder / ".clusters/west")
    other = EmbeddedCluster.create(store, "west", now_ms=lambda: NOW, new_id=lambda: str(uuid.uuid4()))
    other.create_namespace("shop")
    other.create_topic(ORDERS, partitions=2)
    verdict = give_roles(shop.acting(), verb, MIRROR).verdict
    assert verdict is not None
    assert (
        f"west is another cluster than when the link was created: {other.cluster_id}"
        in f"{verdict.message} {verdict.hint}"
    )
    assert status(shop) == "ACTIVE"


@pytest.mark.fact("F-C-065")
def test_a_failover_that_would_lose_more_than_was_approved_is_not_done(shop: Bench) -> None:
    produce_late(shop, "west", 2, 0)
    want(shop, "failed-over")
    shop.plan(FAILOVER, out=Path("p.json"))
    produce_late(shop, "west", 0, 1)
    with pytest.raises(ChangedPlanError) as caught:
        shop.apply(options=FILE)
    (more,) = caught.value.held.difference.more
    assert (caught.value.exit_code, more.whys) == (6, (Why.LOSS,))
    assert more.message == "3 offsets would be lost now, and 2 when it was approved"
    assert caught.value.hint.startswith("Nothing was done. Stop the producers first")
    assert status(shop) == "ACTIVE"
    upkeep(shop, "mirror")  # Now it would lose less than was approved.
    assert shop.apply(options=FILE).verdict is None
    assert (status(shop), logs(shop, "east")) == ("STOPPED", logs(shop, "west"))


@pytest.mark.fact("F-C-065")
def test_what_was_approved_with_its_loss_known_is_not_done_once_the_source_is_gone(shop: Bench) -> None:
    want(shop, "failed-over")
    shop.plan(FAILOVER, out=Path("p.json"))
    lose(shop)
    with pytest.raises(ChangedPlanError, match="the number of offsets that would be lost is no longer known"):
        shop.apply(options=FILE)
    shop.plan(FAILOVER, out=Path("p.json"))
    assert shop.apply(options=FILE).verdict is None
    assert status(shop) == "STOPPED"
