"""Retention of two tiers beside others who are faster: what they did stays, and what they made is not lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.maintenance.survey import MaintenanceResult
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import DAY, TOPIC, append, append_parts, head_of, held, pairs_of
from tests.embedded.watched import WatchedStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore

STRICT = {"retention_ms": "-1", "retention_local_target_bytes": "0", "retention_local_strict": "true"}


def beside(it: Tiered, act: Callable[[], object], *, before: str, remote: bool = False) -> EmbeddedCluster:
    """Return a cluster beside whose first swap of such a key somebody else acts."""
    is_done = False

    def meanwhile(what: str, key: str) -> None:
        nonlocal is_done
        if what == "swap" and before in key and not is_done:
            is_done = True
            act()

    def watch(inner: ObjectStore, *, is_watched: bool) -> ObjectStore:
        return WatchedStore(inner, before=meanwhile) if is_watched else inner

    return it.opened(watch(it.store, is_watched=not remote), watch(it.storage, is_watched=remote))


def is_well(it: Tiered) -> None:
    assert check_cluster(it.store, deep=True, storage=it.storage).findings == []


def test_what_is_uploaded_while_the_manifest_lets_go_stays_named() -> None:
    it = tiered(retention_ms="1d")
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY + 1

    def more() -> None:
        append_parts(it.cluster, 4)
        it.upload()

    assert beside(it, more, before="manifest.json", remote=True).upkeep().retain().records == 8
    assert [row["offset"] for row in held(it.opened())] == list(range(8, 18))
    assert it.manifest().end == 16
    is_well(it)


def test_a_part_that_was_rolled_meanwhile_is_not_evicted_and_goes_with_the_next_pass() -> None:
    it = tiered(**STRICT)
    it.fill(7)
    it.upload(rolls=False)
    before = held(it.opened())
    again = beside(it, lambda: it.cluster.upkeep().roll(), before="heads/")
    assert again.upkeep().retain() == MaintenanceResult()
    assert head_of(it.cluster).local_start == 0
    is_well(it)
    it.cluster.upkeep().retain()
    assert head_of(it.cluster).local_start == 12
    assert held(it.opened()) == before
    is_well(it)


def test_two_that_retain_at_once_do_it_once() -> None:
    it = tiered(retention_ms="1d", **{key: value for key, value in STRICT.items() if key != "retention_ms"})
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY + 1
    it.fill(4)
    it.upload()
    other = it.opened()
    for key, remote in (("heads/", False), ("manifest.json", True)):
        beside(it, lambda: other.upkeep().retain(), before=key, remote=remote).upkeep().retain()
        assert [row["offset"] for row in held(it.opened())] == list(range(8, 18))
        is_well(it)
    assert head_of(it.cluster).local_start == 16
    assert it.opened().upkeep().retain() == MaintenanceResult()


def test_what_was_appended_while_parts_are_evicted_stays() -> None:
    it = tiered(**STRICT)
    it.fill(7)
    it.upload()
    before = held(it.opened())
    beside(it, lambda: append(it.cluster, ("new", "one")), before="heads/").upkeep().retain()
    assert pairs_of(held(it.opened()))[:-1] == pairs_of(before)
    assert head_of(it.cluster).local_start == 12
    is_well(it)


def test_tiering_that_is_switched_off_with_its_data_meanwhile_leaves_what_was_local() -> None:
    it = tiered(**STRICT)
    it.fill(7)
    it.upload()

    def off() -> None:
        it.cluster.alter_topic(
            TOPIC, {"remote.write": "false", "remote.read": "false", "remote.log.disable.policy": "delete"}
        )
        it.cluster.finish_disablings()

    assert beside(it, off, before="heads/").upkeep().retain() == MaintenanceResult()
    assert [row["offset"] for row in held(it.opened())] == list(range(14))
    assert head_of(it.cluster).local_start == 0


def test_a_topic_deleted_while_its_partition_is_retained_stays_deleted() -> None:
    it = tiered(retention_ms="1d")
    it.fill(5)
    it.upload()
    it.clock.now_ms += DAY + 1
    beside(it, lambda: it.cluster.delete_topic(TOPIC), before="manifest.json", remote=True).upkeep().retain()
    assert [listed.key for listed in it.storage.list("")] == ["storage.json"]
    assert list(it.store.list("topics/")) == []
