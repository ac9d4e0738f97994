"""What a cluster has beside segments is kept in object storage, whole, by whoever is newest."""

from __future__ import annotations

import gzip
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from reconciler.archives.archive import release_archive
from reconciler.archives.cluster_metadata import build_location_key, list_stored_clusters
from reconciler.archives.keys import build_metadata_key, build_metadata_prefix
from reconciler.archives.location import TopicLocation
from reconciler.embedded.catalog.model import AclEntry, QuotaEntry
from reconciler.embedded.keys import group_key
from reconciler.embedded.mounts.mounts import Mount
from reconciler.embedded.tiered.cluster_metadata import PARTS, EmbeddedMetadata, MetadataWriter, read_cluster_metadata
from reconciler.errors import NewerFormatError, RetryableError, UnansweredError, UserError
from reconciler.objectstore.memory import MemoryStore
from reconciler.objectstore.wrappers import WrappedStore
from reconciler.resources.mirrors import LinkEntry, Trouble
from tests.embedded.maintenance.tiny_segments import TOPIC as SMALL
from tests.embedded.mounts.recovered_topics import (
    OTHER_ID,
    TOPIC,
    Fuse,
    another,
    begun,
    contents_of,
    location_in,
    say,
    source_in,
)
from tests.embedded.samples import NOW, values
from tests.embedded.stores import DiedError, WatchedStore
from tests.embedded.tiered.tiered_cluster import Tiered, tiered
from tests.servers.stores import ON_SERVERS_THOROUGHLY, fresh_store

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.objectstore.base import ObjectStore, StoredObject

GROUP, PLAIN = "shop:checkout", "reports"
LOGGED = "reconciler.mounting"


@pytest.fixture(params=ON_SERVERS_THOROUGHLY)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    return fresh_store(request, tmp_path / "storage")


def furnish(cluster: EmbeddedCluster) -> None:
    cluster.limit_namespace("shop", QuotaEntry(topics=7, partitions=70))
    cluster.set_topic_acls(TOPIC, (AclEntry("User:ann", "ALLOW", ("READ",)),))
    cluster.create_topic("plain", partitions=3, configs={"retention.ms": "1000"})
    link = LinkEntry("link-1", "east", {"source": "east"}, trouble=Trouble("X", "it is away", 1))
    cluster.catalog.commit(lambda draft: draft.put_link("from-east", link))
    cluster.groups.commit(GROUP, {(TOPIC, 0): 8})
    cluster.groups.commit(PLAIN, {(TOPIC, 0): 5, ("plain", 2): 0})


def keeper(cluster: EmbeddedCluster, storage: ObjectStore | None = None, at_ms: int = NOW) -> MetadataWriter:
    lying = storage or cluster.storage
    assert lying is not None
    return MetadataWriter(cluster.store, lying, cluster.catalog, cluster.cluster_id, lambda: at_ms)


def kept_of(storage: ObjectStore, cluster: EmbeddedCluster) -> EmbeddedMetadata:
    found = read_cluster_metadata(storage, cluster.cluster_id)
    assert found is not None
    return found


def offsets_in(kept: EmbeddedMetadata) -> dict[str, dict[str, dict[int, int]]]:
    return {
        group: {place: {number: each.offset for number, each in offsets.items()} for place, offsets in found.items()}
        for group, found in kept.groups.items()
    }


def part_objects(storage: ObjectStore, cluster: EmbeddedCluster) -> set[str]:
    prefix = build_metadata_prefix(cluster.cluster_id)
    return {listed.key for listed in storage.list(prefix)} - {build_metadata_key(cluster.cluster_id)}


def check_whole(storage: ObjectStore, cluster: EmbeddedCluster) -> EmbeddedMetadata:
    """Return what is kept, which is whole, and all that lies there."""
    kept = kept_of(storage, cluster)
    assert not kept.lost
    assert part_objects(storage, cluster) == {part.key for part in kept.parts.values()}
    return kept


def test_everything_beside_segments_is_kept_and_comes_back(storage: ObjectStore) -> None:
    west = source_in(storage)
    furnish(west)
    done = keeper(west).update_stored()
    assert set(done.written) == set(PARTS)
    kept, catalog = check_whole(storage, west), west.catalog.read()
    assert list_stored_clusters(storage) == [west.cluster_id]
    assert (kept.serial, kept.revision) == (catalog.serial, catalog.revision)
    assert kept.catalog.namespaces == catalog.namespaces
    assert kept.catalog.topics == catalog.topics
    assert kept.catalog.cluster == catalog.cluster
    assert kept.catalog.links == {"from-east": replace(catalog.links["from-east"], trouble=None)}
    orders, plain = (build_location_key(west.cluster_id, catalog.topics[name].revision) for name in (TOPIC, "plain"))
    assert offsets_in(kept) == {GROUP: {orders: {0: 8}}, PLAIN: {orders: {0: 5}, plain: {2: 0}}}
    assert {part.written_ms for part in kept.parts.values()} == {NOW}


def test_where_nothing_changed_nothing_is_written(storage: ObjectStore) -> None:
    west = source_in(storage)
    furnish(west)
    keeper(west).update_stored()
    watched = WatchedStore(storage)
    west.catalog.commit(lambda draft: draft.put_link("from-east", replace(draft.links["from-east"], trouble=None)))
    assert not keeper(west, watched, NOW + 1).update_stored().written
    assert {call for call, _ in watched.calls} == {"get", "list"}
    assert len(watched.calls) == 3  # Twice the register, whose damage is told from its absence; one listing.


def test_only_the_part_that_changed_is_written_and_the_others_keep_their_age(storage: ObjectStore) -> None:
    west = source_in(storage)
    furnish(west)
    keeper(west).update_stored()
    west.groups.commit(GROUP, {(TOPIC, 0): 9})
    watched = WatchedStore(west.store)
    reader = replace(keeper(west, at_ms=NOW + 5), store=watched)
    assert set(reader.update_stored().written) == {"groups"}
    assert [key for call, key in watched.calls if call == "get" and key.startswith("groups/")] == [group_key(GROUP)]
    kept = check_whole(storage, west)
    assert {name: part.written_ms - NOW for name, part in kept.parts.items() if part.written_ms != NOW} == {"groups": 5}
    assert [found[0] for found in offsets_in(kept)[GROUP].values()] == [9]
    west.groups.delete(GROUP, force=True)
    keeper(west).update_stored()
    assert set(offsets_in(check_whole(storage, west))) == {PLAIN}


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("at", range(8))
def test_a_keeper_that_dies_at_any_write_leaves_the_older_whole_or_the_newer(at: int, *, done: bool) -> None:
    storage = MemoryStore()
    west = source_in(storage)
    furnish(west)
    keeper(west).update_stored()
    before = kept_of(storage, west)
    west.create_topic("later", partitions=1)
    west.create_namespace("other")
    west.groups.commit(GROUP, {("later", 0): 0})
    with_fuse = keeper(west, Fuse(at, done=done).on(storage))
    try:
        with_fuse.update_stored()
    except DiedError:
        pass
    else:
        assert at >= 5
    found = kept_of(storage, west)
    assert not found.lost
    assert found.catalog in (before.catalog, replace(west.catalog.read(), id="", links=before.catalog.links))
    west.create_topic("latest", partitions=1)
    keeper(west).update_stored()  # The next change removes what the dead process left.
    assert check_whole(storage, west).catalog.topics == west.catalog.read().topics


def test_a_swap_without_an_answer_is_found_done_the_next_time(storage: ObjectStore) -> None:
    west = source_in(storage)

    def lose(what: str, _key: str) -> None:
        if what == "swap":
            raise UnansweredError("no answer", hint="Try again.")

    with pytest.raises(UnansweredError):
        keeper(west, WatchedStore(storage, after=lose)).update_stored()
    assert not keeper(west).update_stored().written
    check_whole(storage, west)


@pytest.mark.parametrize("what", ["put", "swap"])
def test_of_two_keepers_the_one_that_read_later_wins(storage: ObjectStore, what: str) -> None:
    west = source_in(storage)
    furnish(west)
    others = list[str]()

    def overtake(call: str, _key: str) -> None:
        if call == what and not others:
            others.append("here")
            west.create_topic("later", partitions=1)
            keeper(west).update_stored()

    late = keeper(west, WatchedStore(storage, before=overtake)).update_stored()
    assert not late.written
    assert "later" in check_whole(storage, west).catalog.topics


def test_a_keeper_that_slept_overwrites_nothing(storage: ObjectStore) -> None:
    west = source_in(storage)
    keeper(west).update_stored()
    asleep = Stopped()
    west.create_topic("old", partitions=1)
    stopped = replace(keeper(west), may_go_on=asleep)
    with pytest.raises(UserError, match="fenced"):
        stopped.update_stored()
    assert "old" not in kept_of(storage, west).catalog.topics


class Stopped:
    """Says that another process has the lease."""

    def __call__(self) -> None:
        raise UserError("fenced", hint="Another process goes on.")


def test_a_root_that_was_set_back_never_overwrites_what_is_newer(storage: ObjectStore) -> None:
    store = MemoryStore()
    west = source_in(storage, store=store)
    copy = contents_of(store)
    furnish(west)
    keeper(west).update_stored()
    before = contents_of(storage, "metadata/")
    store.delete(list(contents_of(store)))
    for key, body in copy.items():
        store.put(key, body)
    back = another(storage, store, cluster_id=west.cluster_id)
    with pytest.raises(UserError, match="its root is older than the stored metadata"):
        keeper(back).update_stored()
    assert contents_of(storage, "metadata/") == before


def truncate(body: bytes) -> bytes:
    return body[: len(body) // 2]


def flip(body: bytes) -> bytes:
    return body[:-9] + bytes([body[-9] ^ 1]) + body[-8:]


def empty(_body: bytes) -> bytes:
    return b""


DAMAGE: dict[str, Callable[[bytes], bytes]] = {"truncated": truncate, "flipped": flip, "empty": empty}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("damage", [*DAMAGE, "gone"])
def test_a_part_that_is_damaged_is_told_and_the_others_come_back(part: str, damage: str) -> None:
    storage = MemoryStore()
    west = source_in(storage)
    furnish(west)
    keeper(west).update_stored()
    whole = kept_of(storage, west)
    key = whole.parts[part].key
    body = contents_of(storage)[key]
    storage.delete([key])
    if damage != "gone":
        storage.put(key, DAMAGE[damage](body))
    found = kept_of(storage, west)
    assert set(found.lost) == {part}
    assert key in found.lost[part].message
    assert {name: getattr(found.catalog, name) for name in ("namespaces", "topics", "links") if name != part} == {
        name: getattr(whole.catalog, name) for name in ("namespaces", "topics", "links") if name != part
    }
    assert (found.groups == whole.groups) is (part != "groups")
    assert set(keeper(west).update_stored(checks=damage == "flipped").written) == {part}
    mended = check_whole(storage, west)
    assert (mended.catalog, mended.groups) == (whole.catalog, whole.groups)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ({"format": "reconciler.cluster-metadata-part/2", "content": {}}, "its format is"),
        ({"format": "reconciler.cluster-metadata-part/1"}, "KeyError"),
        ({"format": "reconciler.cluster-metadata-part/1", "content": {"t": {"id": 1}}}, "id"),
        ({"format": "reconciler.cluster-metadata-part/1", "content": []}, "cannot be read"),
    ],
)
def test_a_part_of_another_form_is_refused(content: dict[str, object], why: str) -> None:
    storage = MemoryStore()
    west = source_in(storage)
    keeper(west).update_stored()
    register, key = build_metadata_key(west.cluster_id), "metadata/hand-written.json.gz"
    body = gzip.compress(orjson.dumps(content), mtime=0)
    storage.put(key, body)
    said = orjson.loads(contents_of(storage)[register])
    said["parts"]["topics"] |= {"key": key, "sha256": sha256(body).hexdigest()}
    storage.delete([register])
    storage.put(register, orjson.dumps(said))
    found = kept_of(storage, west)
    assert set(found.lost) == {"topics"}
    assert why in found.lost["topics"].message


@pytest.mark.parametrize("body", [b"", b"{", b'{"format": "reconciler.cluster-metadata/1"}', b"\xff\xfe", b"[]"])
def test_a_damaged_register_is_refused_and_a_living_cluster_writes_it_anew(body: bytes) -> None:
    storage = MemoryStore()
    west = source_in(storage)
    keeper(west).update_stored()
    key = build_metadata_key(west.cluster_id)
    storage.delete([key])
    storage.put(key, body)
    with pytest.raises(UserError, match=r"metadata\.json cannot be read"):
        read_cluster_metadata(storage, west.cluster_id)
    keeper(west).update_stored()
    check_whole(storage, west)


def test_what_a_newer_version_wrote_stays(storage: ObjectStore) -> None:
    west = source_in(storage)
    key, body = build_metadata_key(west.cluster_id), b'{"format": "reconciler.cluster-metadata/2"}'
    storage.put(key, body)
    with pytest.raises(NewerFormatError):
        keeper(west).update_stored()
    assert contents_of(storage, "metadata/") == {key: body}


def test_a_group_that_cannot_be_read_keeps_what_was_kept_of_it(storage: ObjectStore) -> None:
    west = source_in(storage)
    furnish(west)
    keeper(west).update_stored()
    west.store.delete([group_key(GROUP)])
    west.store.put(group_key(GROUP), b"{}")
    west.groups.commit(PLAIN, {(TOPIC, 0): 6})
    done = keeper(west).update_stored()
    assert ["cannot be read" in error.message for error in done.errors] == [True]
    offsets = offsets_in(check_whole(storage, west))
    assert [next(iter(offsets[group].values())) for group in (GROUP, PLAIN)] == [{0: 8}, {0: 6}]


class Unread(WrappedStore):
    """Does not answer where one object is asked for."""

    def __init__(self, inner: ObjectStore, key: str) -> None:
        super().__init__(inner)
        self._key = key

    def get(self, key: str) -> StoredObject | None:
        if key == self._key:
            raise RetryableError(f"{key}: no answer", hint="Try again.")
        return super().get(key)


def test_a_group_that_was_not_answered_for_is_kept_by_the_next_look(storage: ObjectStore) -> None:
    west = source_in(storage)
    furnish(west)
    unread = Unread(west.store, group_key(GROUP))
    done = MetadataWriter(unread, storage, west.catalog, west.cluster_id, lambda: NOW).update_stored()
    assert ["no answer" in error.message for error in done.errors] == [True]
    assert list(check_whole(storage, west).groups) == [PLAIN]
    assert list(keeper(west).update_stored().written) == ["groups"]
    assert sorted(check_whole(storage, west).groups) == [PLAIN, GROUP]
    assert not keeper(west).update_stored().written


def test_secrets_stay_on_the_cluster_and_references_to_them_are_kept() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    said = {"cloud_storage_secret_key": "s3cr3t-value", "cloud_storage_azure_shared_key": "${env:SHARED}"}

    def put(draft: Draft) -> None:
        draft.put_cluster(replace(draft.cluster, properties={**draft.cluster.properties, **said}))

    west.catalog.commit(put)
    keeper(west).update_stored()
    bodies = b"".join(gzip.decompress(contents_of(storage)[key]) for key in part_objects(storage, west))
    assert b"s3cr3t-value" not in bodies
    assert kept_of(storage, west).catalog.cluster.properties["cloud_storage_azure_shared_key"] == "${env:SHARED}"


# When a pass of upkeep keeps it.


@pytest.mark.fact("F-R-131")
def test_it_is_kept_at_an_interval_or_where_it_is_asked_for() -> None:
    it = Tiered()
    it.switch_on()
    assert set(it.cluster.upkeep().store_metadata().written) == set(PARTS)
    it.cluster.create_topic("later", partitions=1)
    it.clock.now_ms += 3_599_999
    assert not it.cluster.upkeep().store_metadata().written
    assert set(it.cluster.upkeep().store_metadata(ignores_interval=True).written) == {"topics"}
    it.cluster.create_topic("latest", partitions=1)
    it.clock.now_ms += 3_600_000
    assert set(it.cluster.upkeep().store_metadata().written) == {"topics"}
    it.cluster.alter_cluster({"cloud_storage_cluster_metadata_upload_interval_ms": "10"})
    it.clock.now_ms += 10
    assert set(it.cluster.upkeep().store_metadata().written) == {"cluster"}
    it.cluster.alter_cluster({"enable_cluster_metadata_upload_loop": "false"})
    it.clock.now_ms += 10
    assert not it.cluster.upkeep().store_metadata(ignores_interval=True).written


def test_a_cluster_without_tiered_storage_keeps_nothing() -> None:
    it = Tiered()
    it.cluster.create_topic("orders", partitions=1)
    assert not it.cluster.upkeep().store_metadata(ignores_interval=True).written
    assert not contents_of(it.storage)


# Groups that come back with the topics they read.


@pytest.mark.fact("F-R-133")
def test_groups_go_on_with_a_recovered_topic_within_what_it_holds(
    storage: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    west = source_in(storage)
    west.create_namespace("ops")
    west.groups.commit(GROUP, {(TOPIC, 0): 8})
    west.groups.commit("ops:audit", {(TOPIC, 0): 1})
    west.groups.commit(PLAIN, {(TOPIC, 0): 99})
    keeper(west).update_stored()
    east = another(storage)
    east.create_topic("mine", partitions=1)
    east.groups.commit(GROUP, {("mine", 0): 0})
    with caplog.at_level(logging.WARNING, LOGGED):
        east.recover_topic(TOPIC, location_in(west))
    assert east.groups.read_committed_offsets(GROUP, [TOPIC, "mine"]) == {(TOPIC, 0): 8, ("mine", 0): 0}
    assert east.groups.read_committed_offsets(PLAIN, [TOPIC]) == {(TOPIC, 0): 12}
    assert east.groups.list_names() == sorted([GROUP, PLAIN])
    assert "groups ops:audit have no namespace here" in caplog.text
    assert (
        "1 committed offset beyond what was uploaded set back to its end: reports, partition 0: 99 → 12" in caplog.text
    )


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("at", range(0, 24, 2))
def test_a_recovery_that_dies_at_any_write_brings_groups_once(at: int, *, done: bool) -> None:
    storage = MemoryStore()
    west = source_in(storage)
    west.groups.commit(GROUP, {(TOPIC, 0): 8})
    west.groups.commit(PLAIN, {(TOPIC, 0): 99})
    keeper(west).update_stored()
    store = MemoryStore()
    begun(storage, location_in(west), store)
    fuse = Fuse(at, done=done)
    dying = another(fuse.on(storage), fuse.on(store))
    with suppress(DiedError):
        dying.finish_recoveries()
    again = another(storage, store)
    assert not any(again.finish_recoveries().values())
    assert again.groups.read_committed_offsets(GROUP, [TOPIC]) == {(TOPIC, 0): 8}
    assert again.groups.read_committed_offsets(PLAIN, [TOPIC]) == {(TOPIC, 0): 12}
    again.groups.commit(PLAIN, {(TOPIC, 0): 3})
    assert not again.finish_recoveries()
    assert again.groups.read_committed_offsets(PLAIN, [TOPIC]) == {(TOPIC, 0): 3}


def test_a_copy_on_the_cluster_that_made_the_topic_has_no_groups(storage: ObjectStore) -> None:
    west = source_in(storage)
    west.groups.commit(GROUP, {(TOPIC, 0): 8})
    keeper(west).update_stored()
    west.recover_topic("shop:copy", location_in(west))
    assert west.groups.read_committed_offsets(GROUP, [TOPIC, "shop:copy"]) == {(TOPIC, 0): 8}


def test_a_topic_comes_back_where_what_was_kept_of_its_groups_is_damaged(
    storage: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    west = source_in(storage)
    west.groups.commit(GROUP, {(TOPIC, 0): 8})
    keeper(west).update_stored()
    storage.delete([kept_of(storage, west).parts["groups"].key])
    east = another(storage)
    with caplog.at_level(logging.WARNING, LOGGED):
        east.recover_topic(TOPIC, location_in(west))
    assert "the offsets of its groups do not come along" in caplog.text
    assert east.log(TOPIC).read_bounds()[0].end == 12
    assert east.groups.list_names() == []
    assert east.cluster_id == OTHER_ID


@pytest.mark.fact("F-R-134")
def test_a_transaction_that_was_open_is_gone_and_its_id_begins_anew() -> None:
    it = tiered()
    it.fill(2)
    producer = it.cluster.producer("till-7")
    producer.init_transactions()
    producer.begin()
    producer.append(SMALL, values("open", partition=[0]))
    producer.flush()
    it.fill(4)
    it.upload()
    keeper(it.cluster).update_stored()
    say(it.cluster, SMALL)
    decided = it.cluster.log(SMALL).read_bounds()[0].stable
    east = another(it.storage)
    east.recover_topic(SMALL, location_in(it.cluster, SMALL))
    bounds = east.log(SMALL).read_bounds()[0]
    assert 0 < bounds.end <= decided
    again = east.producer("till-7")
    again.init_transactions()
    again.begin()
    again.append(SMALL, values("anew", partition=[0]))
    again.commit()
    assert [each.value for each in east.consume(SMALL)][-1] == b"anew"
    assert b"open" not in {each.value for each in east.consume(SMALL, isolation="read_uncommitted")}


def test_groups_of_a_lost_owner_travel_with_a_topic_that_is_released(storage: ObjectStore) -> None:
    west = source_in(storage)
    west.groups.commit(GROUP, {(TOPIC, 0): 8})
    west.groups.commit(PLAIN, {(TOPIC, 0): 99})
    keeper(west).update_stored()
    location = location_in(west)
    for _ in range(2):  # It may be repeated.
        released(storage, location, west.cluster_id)
    east = another(storage)
    east.mounts.drive(east.mounts.mount(Mount(location, TOPIC)))
    assert east.groups.read_committed_offsets(GROUP, [TOPIC]) == {(TOPIC, 0): 8}
    assert east.groups.read_committed_offsets(PLAIN, [TOPIC]) == {(TOPIC, 0): 12}


def released(storage: ObjectStore, location: str, owner: str) -> None:
    with suppress(UserError):  # The second time it is nobody's.
        release_archive(storage, TopicLocation.parse(location), owner, now_ms=NOW)
