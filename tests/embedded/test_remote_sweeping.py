"""The sweep of object storage deletes what no manifest names at our own locations, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from reconciler.embedded.check.sweep import Swept
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.keys import index_key, location_prefix, topic_manifest_key
from reconciler.embedded.tiered.manifest import Garbage, ManifestSwap, manifest_register
from reconciler.errors import UserError
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.samples import ids
from tests.embedded.tiered import Tiered, tiered
from tests.embedded.upkeeping import DAY, TOPIC, LateStore, append, append_parts, held

ORPHANS = ("0-9-10-0-v1-01234567.parquet", "0-9-10-0-v1-01234567.index", "pages/0123.json")
LATER_MS = DAY + 60_000


def filled() -> Tiered:
    """Return a topic with segments in pages and in the manifest itself."""
    it = tiered(segment_bytes="14")
    it.switch_on(spillover_manifest_size="1024")
    for number in range(30):
        append(it.cluster, (None, str(number)))
    it.upload()
    assert it.manifest().pages
    return it


def sweep(it: Tiered, later_ms: int = LATER_MS) -> Swept:
    """Sweep both stores as they will be."""
    late: tuple[Any, Any] = LateStore(it.store, later_ms), LateStore(it.storage, later_ms)
    return it.opened(*late).sweep()


def put(it: Tiered, place: str, *names: str) -> list[str]:
    keys = [f"{place}/{name}" for name in names or ORPHANS]
    for key in keys:
        it.storage.put(key, b"x" * 100)
    return keys


def there(it: Tiered) -> set[str]:
    return {listed.key for listed in it.storage.list("")}


@pytest.mark.fact("F-K-043")
def test_only_what_no_manifest_names_goes_once_it_is_a_day_old() -> None:
    it = filled()
    before, known = held(it.opened()), there(it)
    put(it, it.remote().place)
    others = put(it, it.remote().place, "notes.txt", "mine/0-1.parquet")
    assert sweep(it, 0) == Swept()
    assert sweep(it, DAY - 60_000) == Swept()
    assert sweep(it) == Swept(objects=3, bytes=300)
    assert there(it) - known >= set(others)
    assert known <= there(it)
    assert held(it.opened()) == before
    assert sweep(it) == Swept()


def test_the_age_is_told_by_the_storage_itself() -> None:
    it = filled()
    put(it, it.remote().place)
    it.clock.now_ms += 100 * DAY
    late: Any = LateStore(it.store, LATER_MS)
    assert it.opened(late).sweep() == Swept()


def test_a_manifest_or_page_that_cannot_be_read_stops_it_and_nothing_is_deleted() -> None:
    it = filled()
    it.cluster.create_topic("aaa", configs={"remote.write": "true", "remote.read": "true"})
    with it.cluster.producer() as producer:
        producer.send("aaa", "x", partition=0)
    it.upload()
    orphans = put(it, f"{location_prefix(it.cluster.cluster_id, it.cluster.topic('aaa').revision)}00000")
    for key in (it.manifest().pages[0].key, it.remote().key):
        body = it.storage.get(key)
        assert body is not None
        it.storage.put(key, b"{")
        with pytest.raises(UserError):
            sweep(it)
        assert set(orphans) <= there(it)
        it.storage.put(key, body.body)
    page = it.manifest().pages[0].key
    stored = it.storage.get(page)
    assert stored is not None
    it.storage.delete([page])
    with pytest.raises(UserError, match="what lies at offsets 0 to"):
        sweep(it)
    it.storage.put(page, stored.body)
    assert sweep(it).objects == 3


def test_other_clusters_locations_are_never_touched() -> None:
    it = filled()
    theirs = EmbeddedCluster.create(MemoryStore(), "somebody-else", now_ms=it.clock, new_id=ids(), storage=it.storage)
    theirs.alter_cluster({"cloud_storage_enabled": "true"})
    orphans = put(it, f"{location_prefix('somebody-else', 1)}00000")
    assert sweep(it) == Swept()
    assert set(orphans) <= there(it)


def test_a_location_of_ours_that_another_cluster_owns_by_now_is_left_alone() -> None:
    it = filled()
    register = manifest_register(it.storage, it.remote())
    kept = register.read()
    assert kept is not None
    register.swap(kept, {**kept.value, "owner": "somebody"})
    put(it, it.remote().place)
    put(it, f"{location_prefix(it.cluster.cluster_id, it.tiering().location.revision)}00007")
    before = there(it)
    assert sweep(it) == Swept()
    assert there(it) == before


def test_what_is_kept_on_purpose_stays_and_only_orphans_beside_it_go() -> None:
    it = filled()
    it.cluster.alter_topic(TOPIC, {"remote.delete": "false"})
    place, known = it.remote().place, there(it)
    it.cluster.delete_topic(TOPIC)
    put(it, place)
    assert sweep(it).objects == 3
    assert there(it) == known


def test_objects_without_a_manifest_stay_where_anybody_knows_their_topic() -> None:
    it = filled()
    it.storage.delete([it.remote().key])
    before = there(it)
    assert sweep(it) == Swept()
    # The topic is gone, and described still: it could be recovered but for the manifest that is lost.
    it.cluster.alter_topic(TOPIC, {"remote.delete": "false"})
    revision = it.tiering().location.revision
    it.cluster.delete_topic(TOPIC)
    assert sweep(it) == Swept()
    assert there(it) == before
    it.storage.delete([topic_manifest_key(it.cluster.cluster_id, revision)])
    assert sweep(it).objects == len(before) - 2
    assert there(it) == {"storage.json"}


def test_what_a_deletion_never_named_is_swept_once_the_topic_is_gone() -> None:
    it = filled()
    put(it, it.remote().place)
    it.cluster.delete_topic(TOPIC)
    assert len(there(it)) == 4
    assert sweep(it, 0) == Swept()
    assert sweep(it).objects == 3
    assert there(it) == {"storage.json"}


def test_garbage_that_somebody_left_goes_at_once() -> None:
    it = filled()
    before = held(it.opened())
    lost = put(it, it.remote().place, "7-7-100-0-v1-76543210.parquet")
    (newest,) = it.manifest().entries[-1:]
    left = replace(newest, key=lost[0])

    def with_garbage(manifest: Any) -> Any:
        return replace(manifest, garbage=Garbage(manifest.garbage.pages, (left,)))

    ManifestSwap(it.storage, it.cluster.cluster_id, it.tiering())(it.remote(), with_garbage)
    assert sweep(it, 0) == Swept()
    assert lost[0] not in there(it)
    assert not it.manifest().garbage
    assert held(it.opened()) == before


def test_what_is_named_while_it_runs_stays() -> None:
    it = tiered(segment_bytes="14")
    append_parts(it.cluster, 3)
    it.upload()
    listings: list[str] = []

    class Busy(MemoryStore):
        """Object storage in which, after each listing, somebody appends and uploads."""

        def list(self, prefix: str) -> Any:
            found = list(super().list(prefix))
            if len(listings) < 3:
                listings.append(prefix)
                append_parts(it.cluster, 2)
                it.upload()
            return iter(found)

    orphans = put(it, it.remote().place)
    busy: tuple[Any, Any] = (
        LateStore(it.store, LATER_MS),
        LateStore(Busy(it.storage.url.removeprefix("memory://")), LATER_MS),
    )
    assert it.opened(*busy).sweep().objects == len(orphans)
    assert listings
    assert it.objects() == {key for entry in it.segments() for key in (entry.key, index_key(entry.key))}
    assert len(held(it.opened())) == 6 + 4 * len(listings)
