"""Consumer groups: what is committed stays committed, for topics that move and not for those made anew."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from reconciler.archives.topic_manifest import CommittedOffset
from reconciler.embedded.catalog.model import AclEntry, NamespaceEntry
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Kind, Severity
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.segments.groups import (
    Group,
    commit_decided_offsets,
    commit_offsets,
    group_register,
    read_group,
)
from reconciler.errors import BlockedError, InvalidNamespaceError, NotAuthorizedError, RetryableError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.resources.groups import READING_MS, ByShift, OffsetMove, ToEarliest, ToLatest, ToOffset, ToTime
from tests.contracts.lossy import LossyStore
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket
from tests.embedded.samples import NOW, cluster_in, ids, numbered
from tests.embedded.stores import DiedError, WatchedStore, dying

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


DAY = READING_MS
GROUP = "shop:checkout"
ORDERS = "shop:orders"


@pytest.fixture
def shop(cluster: EmbeddedCluster) -> EmbeddedCluster:
    """A topic of two partitions with ten records in the first."""
    cluster.create_namespace("shop")
    cluster.create_topic(ORDERS, partitions=2)
    append(cluster, ORDERS, 10)
    return cluster


def append(cluster: EmbeddedCluster, topic: str, count: int) -> None:
    producer = cluster.producer()
    batch = numbered(0, count).select(["key", "value", "timestamp_ms", "partition"])
    producer.append(topic, batch)
    producer.flush()


def later(cluster: EmbeddedCluster, ms: int) -> EmbeddedCluster:
    return EmbeddedCluster.open(cluster.store, now_ms=lambda: NOW + ms, new_id=ids())


def offsets(cluster: EmbeddedCluster, group: str = GROUP) -> dict[tuple[str, int], int]:
    return {place: each.offset for place, each in cluster.groups.fetch(group).items()}


def test_what_is_committed_is_fetched_again_with_its_note(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): CommittedOffset(4, "till 3"), (ORDERS, 1): 0})
    assert shop.groups.fetch(GROUP) == {
        (ORDERS, 0): CommittedOffset(4, "till 3", NOW),
        (ORDERS, 1): CommittedOffset(0, "", NOW),
    }
    assert shop.groups.fetch(GROUP, [ORDERS]).keys() == {(ORDERS, 0), (ORDERS, 1)}
    assert shop.groups.fetch(GROUP, []) == {}
    assert shop.groups.list_names() == [GROUP]


def test_a_later_commit_changes_only_the_partitions_it_names(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4, (ORDERS, 1): 0})
    shop.groups.commit(GROUP, {(ORDERS, 0): 2})
    assert offsets(shop) == {(ORDERS, 0): 2, (ORDERS, 1): 0}


def test_a_group_that_never_committed_has_nothing_and_is_not_listed(shop: EmbeddedCluster) -> None:
    assert shop.groups.fetch(GROUP) == {}
    shop.groups.commit(GROUP, {})
    assert shop.groups.list_names() == []
    with pytest.raises(UserError, match="group shop:checkout does not exist"):
        shop.groups.describe(GROUP)


def test_a_topic_that_moves_keeps_its_offsets(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    shop.create_namespace("shop:eu")
    shop.move_topic(ORDERS, "shop:eu:orders")
    assert offsets(shop) == {("shop:eu:orders", 0): 4}


def test_a_topic_made_anew_starts_without_offsets_and_the_old_ones_go_with_the_next_commit(
    shop: EmbeddedCluster,
) -> None:
    shop.create_topic("shop:other")
    shop.groups.commit(GROUP, {(ORDERS, 0): 4, ("shop:other", 0): 0})
    old = shop.topic(ORDERS).id
    shop.delete_topic(ORDERS)
    shop.create_topic(ORDERS, partitions=2)
    assert offsets(shop) == {("shop:other", 0): 0}
    assert old in held(shop).topic_ids
    shop.groups.commit(GROUP, {("shop:other", 0): 0})
    assert old not in held(shop).topic_ids


def held(cluster: EmbeddedCluster, group: str = GROUP) -> Group:
    found = read_group(cluster.store, group)
    assert found is not None
    return found


def test_offsets_of_a_topic_deleted_in_the_meantime_are_dropped(shop: EmbeddedCluster) -> None:
    topic_id = shop.topic(ORDERS).id
    shop.delete_topic(ORDERS)
    shop.groups.commit_places(GROUP, {(topic_id, 0): 4})
    assert shop.groups.list_names() == []


def test_an_offset_outside_the_log_is_read_as_its_nearest_end(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 99, (ORDERS, 1): 7})
    assert offsets(shop) == {(ORDERS, 0): 10, (ORDERS, 1): 0}
    assert [(row.committed, row.lag) for row in shop.groups.describe(GROUP).offsets] == [(10, 0), (0, 0)]


def test_synced_offsets_hold_until_the_group_commits_its_own_and_end_with_the_log(shop: EmbeddedCluster) -> None:
    topic_id = shop.topic(ORDERS).id
    synced = Group({}, {(topic_id, 0): CommittedOffset(95), (topic_id, 1): CommittedOffset(0)})
    group_register(shop.store, GROUP).update(lambda _held: synced.to_json(), mark="sync")
    assert offsets(shop) == {(ORDERS, 0): 10, (ORDERS, 1): 0}
    assert not shop.groups.describe(GROUP).is_reading
    shop.groups.commit(GROUP, {(ORDERS, 0): 3})
    assert offsets(shop) == {(ORDERS, 0): 3, (ORDERS, 1): 0}


# -- what is refused


def test_a_group_needs_its_namespace_and_none_is_made_for_it(shop: EmbeddedCluster) -> None:
    with pytest.raises(InvalidNamespaceError, match="namespace bank does not exist"):
        shop.groups.commit("bank:audit", {(ORDERS, 0): 1})
    assert shop.namespaces() == ["shop"]
    shop.groups.commit("audit", {(ORDERS, 0): 1})
    assert shop.groups.list_names() == ["audit"]


@pytest.mark.parametrize(
    ("place", "given", "why"),
    [
        ((ORDERS, 2), 0, "there is no such partition"),
        ((ORDERS, -1), 0, "there is no such partition"),
        ((ORDERS, 0), -1, "-1 is not an offset"),
        ((ORDERS, 0), 1 << 63, "is not an offset"),
        ((ORDERS, 0), CommittedOffset(0, "é" * 2049), "longer than 4,096 bytes"),
        (("shop:none", 0), 0, "topic shop:none does not exist"),
    ],
)
def test_what_cannot_be_committed_is_refused_whole(
    shop: EmbeddedCluster, place: tuple[str, int], given: int | CommittedOffset, why: str
) -> None:
    with pytest.raises(UserError, match=why):
        shop.groups.commit(GROUP, {(ORDERS, 1): 0, place: given})
    assert shop.groups.list_names() == []


@pytest.mark.parametrize(
    "name",
    [
        "shop:a/b",
        "shop:..",
        "..",
        ".",
        "shop:../../x",
        "a b",
        "%2f",
        "shop:é",
        "shop:\n\t\0",
        "[bold]",
        "CON",
        "ø" * 41,
    ],
)
def test_a_group_may_be_called_anything(shop: EmbeddedCluster, name: str) -> None:
    shop.groups.commit(name, {(ORDERS, 0): 3})
    assert shop.groups.list_names() == [name]
    assert offsets(shop, name) == {(ORDERS, 0): 3}
    assert later(shop, DAY).groups.delete(name)
    assert shop.groups.list_names() == []


@pytest.mark.parametrize("name", ["", "x" * 250, "ø" * 42, "shop:\ud800"])
def test_a_name_that_is_no_text_or_too_long_is_refused(shop: EmbeddedCluster, name: str) -> None:
    with pytest.raises(UserError, match="group"):
        shop.groups.commit(name, {(ORDERS, 0): 3})
    with pytest.raises(UserError, match="group"):
        shop.groups.fetch(name)


def test_the_longest_legal_name_fits(shop: EmbeddedCluster) -> None:
    shop.create_namespace(":".join(["t" * 60] * 3))
    name = ":".join(["t" * 60] * 3) + ":" + "g" * 66
    assert len(name) == 249
    shop.groups.commit(name, {(ORDERS, 0): 3})
    assert shop.groups.list_names() == [name]


def test_what_else_lies_among_the_groups_is_no_group(shop: EmbeddedCluster) -> None:
    for key in ("groups/a%2fb.json", "groups/%ff.json", "groups/x/y.json", "groups/.json"):
        shop.store.put(key, b"{}")
    shop.groups.commit(GROUP, {(ORDERS, 0): 3})
    assert shop.groups.list_names() == [GROUP]


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"format": "reconciler.head/2"}', b'{"format": "reconciler.group/2"}'])
def test_a_damaged_or_newer_register_is_said_by_name_and_left_alone(shop: EmbeddedCluster, body: bytes) -> None:
    shop.store.put("groups/shop:checkout.json", body)
    with pytest.raises(UserError, match=r"groups/shop:checkout\.json"):
        shop.groups.fetch(GROUP)
    with pytest.raises(UserError, match=r"groups/shop:checkout\.json"):
        shop.groups.commit(GROUP, {(ORDERS, 0): 1})
    stored = shop.store.get("groups/shop:checkout.json")
    assert stored is not None
    assert stored.body == body


# -- crashes, lost answers, races


def test_a_commit_whose_answer_is_lost_is_done_once(store: ObjectStore) -> None:
    cluster_in(store).create_topic("orders")
    append(cluster_in(store), "orders", 5)
    lossy = LossyStore(store)
    cluster_in(lossy).groups.commit("checkout", {("orders", 0): 2})
    assert held(cluster_in(store), "checkout").own.keys() == {(cluster_in(store).topic("orders").id, 0)}
    assert lossy.swaps == 1


def test_the_same_mark_twice_is_one_commit(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 2}, mark="txn-7")
    shop.groups.commit(GROUP, {(ORDERS, 0): 5})
    shop.groups.commit(GROUP, {(ORDERS, 0): 2}, mark="txn-7")
    assert offsets(shop) == {(ORDERS, 0): 5}


def test_a_decided_commit_is_made_although_its_namespace_is_gone(shop: EmbeddedCluster) -> None:
    shop.create_namespace("tmp")
    place = (shop.topic(ORDERS).id, 0)
    shop.delete_namespace("tmp")
    commit_decided_offsets(shop.store, shop.catalog, "tmp:job", {place: 4}, mark="m", now_ms=NOW)
    assert offsets(shop, "tmp:job") == {(ORDERS, 0): 4}
    with pytest.raises(InvalidNamespaceError):
        commit_offsets(shop.store, shop.catalog, "tmp:job", {place: 5}, mark="n", now_ms=NOW)


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("what", ["commit", "reset", "delete", "forget"])
def test_a_death_at_any_write_leaves_all_or_nothing_and_the_next_try_finishes(
    shop: EmbeddedCluster, what: str, *, done: bool
) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4, (ORDERS, 1): 0})
    idle = later(shop, DAY)

    def act(cluster: EmbeddedCluster) -> None:
        groups = cluster.groups
        match what:
            case "commit":
                groups.commit(GROUP, {(ORDERS, 0): 9})
            case "reset":
                groups.reset_offsets(GROUP, groups.plan_reset(GROUP, ToEarliest()))
            case "delete":
                groups.delete(GROUP)
            case _:
                groups.delete(GROUP, ORDERS)

    before, after = (
        {(ORDERS, 0): 4, (ORDERS, 1): 0},
        {(ORDERS, 0): {"commit": 9, "reset": 0}.get(what, 0), (ORDERS, 1): 0},
    )
    if what in {"delete", "forget"}:
        after = {}
    dead = EmbeddedCluster.open(dying(shop.store, 0, done=done), now_ms=idle.now_ms, new_id=ids())
    with pytest.raises(DiedError):
        act(dead)
    assert offsets(idle) == (after if done else before)
    act(idle)
    assert offsets(idle) == after


def test_an_unanswered_commit_can_be_made_again(shop: EmbeddedCluster) -> None:
    silent = EmbeddedCluster.open(LossyStore(shop.store, retries=False), now_ms=lambda: NOW, new_id=ids())
    with pytest.raises(RetryableError):
        silent.groups.commit(GROUP, {(ORDERS, 0): 4})
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    assert offsets(shop) == {(ORDERS, 0): 4}


def test_committers_of_one_group_lose_nothing_of_each_other(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    cluster.create_topic("orders", partitions=8)

    def commit(partition: int) -> None:
        for offset in range(10):
            cluster.groups.commit("checkout", {("orders", partition): offset})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(commit, range(8)))
    own = held(cluster, "checkout").own
    assert {partition: each.offset for (_, partition), each in own.items()} == dict.fromkeys(range(8), 9)


def test_a_commit_on_a_topic_made_meanwhile_is_not_taken_for_one_of_a_topic_that_is_gone(store: ObjectStore) -> None:
    cluster = cluster_in(store)
    cluster.create_topic("orders")
    cluster.groups.commit("checkout", {("orders", 0): 0})

    def intrude(what: str, key: str) -> None:
        if what == "swap" and key.startswith("groups/") and len(watched.calls) < 100:
            watched.calls += [("", "")] * 100
            cluster.create_topic("later")
            cluster.groups.commit("checkout", {("later", 0): 0})

    watched = WatchedStore(store, before=intrude)
    slow = EmbeddedCluster.open(watched, now_ms=lambda: NOW, new_id=ids())
    slow.groups.commit("checkout", {("orders", 0): 0})
    assert offsets(cluster, "checkout").keys() == {("orders", 0), ("later", 0)}


# -- looking


def test_a_description_has_every_partition_of_what_was_read_and_its_lag(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    found = shop.groups.describe(GROUP)
    rows = [(row.topic, row.partition, row.committed, row.start, row.stable, row.end, row.lag) for row in found.offsets]
    assert rows == [(ORDERS, 0, 4, 0, 10, 10, 6), (ORDERS, 1, None, 0, 0, 0, None)]
    assert (found.lag, found.is_reading, found.last_commit_ms) == (6, True, NOW)


def test_a_group_is_reading_for_24_hours_after_its_last_commit(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    assert later(shop, DAY - 1).groups.describe(GROUP).is_reading
    assert not later(shop, DAY).groups.describe(GROUP).is_reading


def test_a_topic_has_its_groups_each_with_its_own_lag(shop: EmbeddedCluster) -> None:
    shop.create_topic("shop:other")
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    shop.groups.commit("audit", {(ORDERS, 0): 10, ("shop:other", 0): 0})
    shop.groups.commit("elsewhere", {("shop:other", 0): 0})
    found = shop.groups.list_for_topic(ORDERS)
    assert found is not None
    assert [(group.name, group.lag, {row.topic for row in group.offsets}) for group in found] == [
        ("audit", 0, {ORDERS}),
        (GROUP, 6, {ORDERS}),
    ]


def test_who_is_reading_is_told_by_topic_and_only_of_groups_written_lately(shop: EmbeddedCluster) -> None:
    shop.create_topic("shop:other")
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    shop.groups.commit("audit", {(ORDERS, 0): 10, ("shop:other", 0): 0})
    assert shop.groups.find_topic_readers() == {ORDERS: ("audit", GROUP), "shop:other": ("audit",)}
    assert later(shop, DAY).groups.find_topic_readers() == {}


def test_a_thousand_groups_are_told_and_more_are_too_many() -> None:
    cluster = cluster_in(MemoryStore())
    cluster.create_topic("orders")
    cluster.groups.commit("g0", {("orders", 0): 0})
    stored = cluster.store.get("groups/g0.json")
    assert stored is not None
    for number in range(1, 1000):
        cluster.store.put(f"groups/g{number}.json", stored.body)
    assert len(cluster.groups.list_names()) == 1000
    assert len(cluster.groups.list_for_topic("orders") or ()) == 1000
    assert len((cluster.groups.find_topic_readers() or {})["orders"]) == 1000
    cluster.store.put("groups/one-more.json", stored.body)
    assert cluster.groups.list_for_topic("orders") is None
    assert cluster.groups.find_topic_readers() is None


def test_listing_opens_nothing_and_describing_reads_each_partition_once(store: ObjectStore) -> None:
    watched = WatchedStore(store)
    cluster = cluster_in(watched)
    cluster.create_topic("orders", partitions=3)
    for number in range(5):
        cluster.groups.commit(f"g{number}", {("orders", 0): 0})
    append(cluster, "orders", 4)
    watched.calls.clear()
    assert len(cluster.groups.list_names()) == 5
    assert watched.count("get", "groups/") == 0
    cluster.groups.list_for_topic("orders")
    assert (watched.count("get", "heads/"), watched.count("get", "groups/")) == (1, 5)


def test_looking_at_groups_does_not_load_pyarrow() -> None:
    program = """
import sys
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.memory import MemoryStore
cluster = EmbeddedCluster.create(MemoryStore(), now_ms=lambda: 0, new_id=lambda: "00000000-0000-4000-8000-000000000001")
cluster.create_topic("orders")
cluster.groups.commit("checkout", {("orders", 0): 0})
groups = cluster.groups
groups.list_names(), groups.describe("checkout"), groups.list_for_topic("orders"), groups.find_topic_readers()
sys.exit("pyarrow" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


# -- resets and deletes


@pytest.mark.parametrize(
    ("reset", "after"),
    [
        (ToEarliest(), 0),
        (ToLatest(), 10),
        (ToOffset(7), 7),
        (ToOffset(99), 10),
        (ByShift(-1), 3),
        (ByShift(3), 7),
        (ByShift(-50), 0),
        (ToTime(NOW + 6), 6),
        (ToTime(0), 0),
        (ToTime(NOW + DAY), 10),
    ],
)
def test_a_reset_says_what_it_moves_and_moves_that(shop: EmbeddedCluster, reset: object, after: int) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    idle = later(shop, DAY)
    moves = idle.groups.plan_reset(GROUP, reset, partition=0)  # type: ignore[arg-type]  # parametrized
    assert moves == (OffsetMove(ORDERS, 0, 4, after),)
    assert offsets(shop) == {(ORDERS, 0): 4}
    idle.groups.reset_offsets(GROUP, moves)
    assert offsets(shop) == {(ORDERS, 0): after}
    assert idle.groups.plan_reset(GROUP, reset, partition=0) == () or isinstance(reset, ByShift)  # type: ignore[arg-type]  # as above


def test_a_reset_is_no_reading(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    idle = later(shop, DAY)
    idle.groups.reset_offsets(GROUP, idle.groups.plan_reset(GROUP, ToEarliest()))
    found = idle.groups.describe(GROUP)
    assert (found.is_reading, found.last_commit_ms) == (False, NOW)


def test_a_reset_gives_a_new_group_its_first_offsets_where_the_topic_is_named(shop: EmbeddedCluster) -> None:
    with pytest.raises(UserError, match="group shop:new does not exist"):
        shop.groups.plan_reset("shop:new", ToLatest())
    moves = shop.groups.plan_reset("shop:new", ToLatest(), topic=ORDERS)
    assert moves == (OffsetMove(ORDERS, 0, None, 10), OffsetMove(ORDERS, 1, None, 0))
    shop.groups.reset_offsets("shop:new", moves)
    assert offsets(shop, "shop:new") == {(ORDERS, 0): 10, (ORDERS, 1): 0}
    assert not shop.groups.describe("shop:new").is_reading


def test_a_reset_of_a_partition_or_topic_that_is_not_there_is_refused(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    with pytest.raises(UserError, match="partition 9"):
        shop.groups.plan_reset(GROUP, ToLatest(), partition=9)
    with pytest.raises(UserError, match="topic shop:none does not exist"):
        shop.groups.plan_reset(GROUP, ToLatest(), topic="shop:none")
    moves = later(shop, DAY).groups.plan_reset(GROUP, ToLatest())
    shop.delete_topic(ORDERS)
    with pytest.raises(UserError, match="topic shop:orders does not exist"):
        later(shop, DAY).groups.reset_offsets(GROUP, moves)


def test_a_group_that_is_reading_is_neither_reset_nor_deleted_unless_it_is_forced(shop: EmbeddedCluster) -> None:
    shop.create_topic("shop:other")
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    moves = shop.groups.plan_reset(GROUP, ToEarliest())
    for refused in (
        lambda: shop.groups.reset_offsets(GROUP, moves),
        lambda: shop.groups.delete(GROUP),
        lambda: shop.groups.delete(GROUP, ORDERS),
    ):
        with pytest.raises(BlockedError, match="group shop:checkout is reading"):
            refused()
    shop.groups.reset_offsets(GROUP, shop.groups.plan_reset(GROUP, ToLatest(), topic="shop:other"))
    shop.groups.reset_offsets(GROUP, moves, force=True)
    assert offsets(shop) == {(ORDERS, 0): 0, (ORDERS, 1): 0, ("shop:other", 0): 0}
    assert shop.groups.delete(GROUP, force=True)
    assert not shop.groups.delete(GROUP)


def test_a_commit_between_the_look_and_the_reset_blocks_it(shop: EmbeddedCluster) -> None:
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    idle = later(shop, DAY)
    moves = idle.groups.plan_reset(GROUP, ToEarliest())
    idle.groups.commit(GROUP, {(ORDERS, 0): 6})
    with pytest.raises(BlockedError):
        idle.groups.reset_offsets(GROUP, moves)
    assert offsets(shop) == {(ORDERS, 0): 6}


def test_offsets_of_one_topic_can_be_forgotten(shop: EmbeddedCluster) -> None:
    shop.create_topic("shop:other")
    shop.groups.commit(GROUP, {(ORDERS, 0): 4, ("shop:other", 0): 0})
    assert later(shop, DAY).groups.delete(GROUP, ORDERS)
    assert not later(shop, DAY).groups.delete(GROUP, ORDERS)
    assert not shop.groups.delete("shop:nobody", ORDERS)
    assert offsets(shop) == {("shop:other", 0): 0}


# -- permissions


def test_a_group_is_deleted_only_by_who_may_read_all_it_has_offsets_of(shop: EmbeddedCluster) -> None:
    everything = AclEntry("User:eve", "allow", ("all",), resources=("groups",))
    other = AclEntry("User:eve", "allow", ("read",), names=("other", "seen"))
    seen = AclEntry("User:eve", "deny", ("read",), names=("seen",))
    for topic in ("shop:other", "shop:seen"):
        shop.create_topic(topic)
    shop.catalog.commit(lambda draft: draft.put_namespace("shop", NamespaceEntry(acls=(everything, other, seen))))
    eve = later(shop, DAY).acting_as("User:eve").groups
    shop.groups.commit(GROUP, {(ORDERS, 0): 4, ("shop:other", 0): 0})
    with pytest.raises(
        NotAuthorizedError, match="User:eve may not read every topic that group shop:checkout has offsets of"
    ) as refused:
        eve.delete(GROUP, force=True)
    assert ORDERS not in f"{refused.value.message} {refused.value.hint}"
    assert offsets(shop) == {(ORDERS, 0): 4, ("shop:other", 0): 0}
    assert later(shop, DAY).groups.delete(GROUP, ORDERS)
    assert eve.delete(GROUP, force=True)
    shop.groups.commit(GROUP, {("shop:seen", 0): 0})
    with pytest.raises(NotAuthorizedError, match="User:eve may not read topic shop:seen"):
        eve.delete(GROUP, force=True)
    shop.delete_topic("shop:seen")
    assert eve.delete(GROUP, force=True)


def test_each_operation_needs_its_permission(shop: EmbeddedCluster) -> None:
    rules = [
        AclEntry("User:reader", "allow", ("read",), resources=("groups", "topics")),
        AclEntry("User:viewer", "allow", ("describe",), resources=("groups",)),
    ]
    shop.groups.commit(GROUP, {(ORDERS, 0): 4})
    shop.catalog.commit(lambda draft: draft.put_namespace("shop", NamespaceEntry(acls=tuple(rules))))
    reader, viewer, nobody = (
        later(shop, DAY).acting_as(f"User:{who}").groups for who in ("reader", "viewer", "nobody")
    )
    reader.commit(GROUP, {(ORDERS, 0): 5})
    assert reader.fetch(GROUP)[ORDERS, 0].offset == 5
    assert viewer.list_names() == [GROUP]
    assert viewer.describe(GROUP).offsets == ()
    assert nobody.list_names() == []
    for refused in (
        lambda: viewer.commit(GROUP, {(ORDERS, 0): 5}),
        lambda: viewer.fetch(GROUP),
        lambda: viewer.reset_offsets(GROUP, [OffsetMove(ORDERS, 0, 4, 0)]),
        lambda: reader.delete(GROUP),
        lambda: nobody.describe(GROUP),
        lambda: nobody.list_for_topic(ORDERS),
    ):
        with pytest.raises(NotAuthorizedError):
            refused()


# Groups that stay where a topic left: what they have of it is no trouble, and goes with the next commit.


def test_what_a_group_keeps_of_a_topic_that_was_unmounted_is_noted_until_it_commits() -> None:
    bucket = Bucket()
    bucket.filled()
    bucket.west.create_topic("shop:other")
    bucket.west.groups.commit("billing", {(CLICKS, 0): 2})
    bucket.unmounted()
    bucket.west.finish_deletions()
    (found,) = check_cluster(bucket.stores["west"]).findings
    assert (found.kind, found.severity) == (Kind.GROUP_LEFT_OVER, Severity.NOTE)
    bucket.west.groups.commit("billing", {("shop:other", 0): 0})
    assert check_cluster(bucket.stores["west"]).findings == []
