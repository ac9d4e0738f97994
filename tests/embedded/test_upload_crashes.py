"""Dying before and after every write of an upload, losing answers, racing: nothing is lost, doubled or left over."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from reconciler.embedded.check.sweep import sweep
from reconciler.embedded.keys import index_key
from reconciler.embedded.segments.pages import all_entries
from reconciler.embedded.segments.parts import read_part
from reconciler.embedded.tiered.manifest import read_manifest
from tests.contracts.lossy import LossyStore
from tests.embedded.samples import rows_of
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import ALL, DAY, LateStore, append, append_parts, copied, head_of, held, pairs_of
from tests.embedded.watched import DiedError, WatchedStore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.embedded.tiered.manifest import Manifest


def filled(*, cleanup_policy: str = "delete") -> Tiered:
    """Return a topic of which some is uploaded by interval, in the middle of a segment, and more has come since."""
    tier = tiered(partitions=2, cleanup_policy=cleanup_policy, min_cleanable_dirty_ratio="0")
    tier.switch_on(segment_max_upload_interval_sec="60")
    for partition in range(2):
        append_parts(tier.cluster, 3, partition=partition)
    tier.upload()
    for partition in range(2):
        append_parts(tier.cluster, 4, partition=partition)
    return tier


def both_copied(tier: Tiered) -> Tiered:
    return Tiered(copied(tier.store), copied(tier.storage), tier.clock)


def uploading(cluster: EmbeddedCluster) -> None:
    upkeep = cluster.upkeep()
    upkeep.roll()
    upkeep.upload()


@dataclass
class Fuse:
    """Burns down with every write to either tier."""

    at: int
    writes: int = 0

    def tick(self, _what: str, _key: str) -> None:
        if self.writes == self.at:
            raise DiedError
        self.writes += 1

    def store(self, inner: Any, *, done: bool) -> WatchedStore:
        return WatchedStore(inner, after=self.tick) if done else WatchedStore(inner, before=self.tick)


def crashes(tier: Tiered) -> Iterator[Tiered]:
    """Yield both tiers as they are left behind, for every write at which the upload can die, before and after it."""
    for done in (False, True):
        for at in itertools.count():
            left, fuse = both_copied(tier), Fuse(at)
            try:
                uploading(left.opened(fuse.store(left.store, done=done), fuse.store(left.storage, done=done)))
            except DiedError:
                yield left
            else:
                assert at > 1
                break


def check(tier: Tiered, rows: dict[int, list[dict[str, Any]]]) -> None:
    """Check that all that is named is there, each record once and as it is in the log, and heads never run ahead."""
    for partition in range(2):
        manifest = tier.manifest(partition)
        assert head_of(tier.cluster, partition).uploaded_to <= manifest.end
        found = remote_rows(tier, manifest, partition)
        assert found == [row for row in rows[partition] if row["offset"] < manifest.end]


def remote_rows(tier: Tiered, manifest: Manifest, partition: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for entry in all_entries(tier.storage, manifest):
        assert tier.storage.get(index_key(entry.key)) is not None
        rows += rows_of(read_part(tier.storage, entry, partition, ALL))
    return rows


def named(tier: Tiered) -> set[str]:
    entries = [entry for partition in range(2) for entry in tier.segments(partition)]
    return {key for entry in entries for key in (entry.key, index_key(entry.key))}


def swept(tier: Tiered) -> None:
    late: Any = LateStore(tier.store, DAY + 60_000)
    later: Any = LateStore(tier.storage, DAY + 60_000)
    cluster = tier.opened(late, later)
    sweep(late, cluster.catalog, storage=later)


@pytest.mark.fact("F-R-033")
@pytest.mark.fact("F-K-043")
def test_an_upload_that_died_is_finished_by_the_next_each_record_once() -> None:
    tier = filled()
    rows = {partition: held(tier.cluster, partition) for partition in range(2)}
    points = 0
    for left in crashes(tier):
        points += 1
        check(left, rows)
        assert {partition: pairs_of(held(left.cluster, partition)) for partition in range(2)} == {
            partition: pairs_of(rows[partition]) for partition in range(2)
        }
        uploading(left.opened())
        check(left, rows)
        assert [head_of(left.cluster, partition).uploaded_to for partition in range(2)] == [12, 12]
        assert named(left) <= left.objects()
        if points % 4 == 0:
            swept(left)
            assert left.objects() == named(left)
    assert points > 20


@pytest.mark.fact("F-R-020")
def test_a_compacted_topic_that_died_uploading_once_more_is_finished_by_the_next() -> None:
    tier = filled(cleanup_policy="compact")
    tier.upload()
    assert tier.cluster.upkeep().compact().failed == 0
    whole = both_copied(tier)
    uploading(whole.opened())
    after = {partition: held(whole.cluster, partition) for partition in range(2)}
    points = 0
    for left in crashes(tier):
        points += 1
        for partition in range(2):
            for entry in left.segments(partition):
                assert left.storage.get(entry.key) is not None
        uploading(left.opened())
        check(left, after)
        if points % 4 == 0:
            swept(left)
            assert left.objects() == named(left)
    assert points > 8


@pytest.mark.fact("F-R-033")
@pytest.mark.parametrize("retries", [True, False])
def test_lost_answers_neither_double_nor_lose_anything(*, retries: bool) -> None:
    tier = filled()
    rows = {partition: held(tier.cluster, partition) for partition in range(2)}
    lossy: Any = LossyStore(tier.storage, retries=retries)
    uploading(tier.opened(storage=lossy))
    assert lossy.swaps > 1
    check(tier, rows)
    uploading(tier.opened())
    check(tier, rows)
    assert head_of(tier.cluster).uploaded_to == 12
    swept(tier)
    assert tier.objects() == named(tier)


@pytest.mark.fact("F-R-033")
def test_of_two_uploaders_one_is_named_and_the_other_cleans_up() -> None:
    tier = filled()
    rows = {partition: held(tier.cluster, partition) for partition in range(2)}
    others: list[int] = []

    def meanwhile(what: str, key: str) -> None:
        if what == "swap" and "manifest.json" in key and not others:
            others.append(1)
            uploading(tier.opened())

    uploading(tier.opened(storage=WatchedStore(tier.storage, before=meanwhile)))
    assert others
    check(tier, rows)
    assert tier.objects() == named(tier)


@pytest.mark.fact("F-K-043")
def test_what_was_put_for_a_topic_that_is_deleted_meanwhile_goes() -> None:
    tier = filled()
    others: list[int] = []

    def meanwhile(what: str, key: str) -> None:
        if what == "swap" and "manifest.json" in key and not others:
            others.append(1)
            tier.opened().delete_topic("orders")

    remote = tier.remote()
    done = tier.opened(storage=WatchedStore(tier.storage, before=meanwhile)).upkeep().upload()
    assert others
    assert done.failed == 0
    assert read_manifest(tier.storage, remote) is None
    assert not tier.objects()


def test_what_lay_unnamed_for_an_hour_is_put_again() -> None:
    tier = filled()
    rows = {partition: held(tier.cluster, partition) for partition in range(2)}

    def sleeps(what: str, key: str) -> None:
        if what == "put" and key.endswith(".index"):
            tier.clock.now_ms += 2 * 60 * 60 * 1000

    before = named(tier)
    done = tier.opened(storage=WatchedStore(tier.storage, after=sleeps)).upkeep().upload()
    assert (done.partitions, done.failed) == (0, 0)
    assert tier.objects() == named(tier) == before
    uploading(tier.opened())
    check(tier, rows)
    assert head_of(tier.cluster).uploaded_to == 14  # The interval has passed, too.


def test_retention_in_the_middle_of_an_upload_leaves_what_is_left_readable() -> None:
    tier = filled()
    tier.cluster.alter_topic("orders", {"retention.ms": "1d", "local.retention.ms": "1d"})
    tier.clock.now_ms += 2 * DAY
    append(tier.cluster, ("new", "one"))
    others: list[int] = []

    def meanwhile(what: str, key: str) -> None:
        if what == "swap" and "manifest.json" in key and not others:
            others.append(1)
            tier.opened().upkeep().retain()

    uploading(tier.opened(storage=WatchedStore(tier.storage, before=meanwhile)))
    assert others
    for _ in range(3):
        upkeep = tier.opened().upkeep()
        assert upkeep.retain().failed == 0
        upkeep.upload()
    rows = held(tier.cluster)
    assert rows[-1]["key"] == b"new"
    swept(tier)
    assert named(tier) == tier.objects()
