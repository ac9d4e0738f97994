"""Recovery while something goes wrong: a process that dies, another that recovers too, a source that changes."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from reconciler.errors import MissingObjectError, UserError
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.recovering import (
    TOPIC,
    Fuse,
    another,
    begun,
    contents_of,
    drop_first,
    fill,
    location_in,
    named_objects,
    records_in,
    remote_objects,
    source_in,
)
from tests.embedded.watched import DiedError, WatchedStore


@pytest.mark.parametrize("when", ["before", "between"])
def test_a_topic_that_is_deleted_while_it_recovers_leaves_nothing(when: str) -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, partitions=2)
    before = contents_of(storage)
    east = begun(storage, location_in(west), store)
    copies = 0

    def delete_soon(what: str, _key: str) -> None:
        nonlocal copies
        copies += what == "copy_in"
        if (what, copies) == ("copy_in", 3):
            east.delete_topic(TOPIC)

    if when == "before":
        east.delete_topic(TOPIC)
    watched = WatchedStore(storage, after=delete_soon)
    another(watched, store).finish_recoveries()
    assert contents_of(storage) == before
    assert not contents_of(store, "heads/") | contents_of(store, "topics/")
    assert not east.catalog.read().deletions


@pytest.mark.parametrize("configs", [{}, {"remote.write": "false"}, {"remote.delete": "false"}])
def test_deleting_a_topic_half_way_takes_its_copies_whatever_it_was_to_keep(configs: dict[str, str]) -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, partitions=2)
    before = contents_of(storage)
    begun(storage, location_in(west), store, **configs)
    east = another(Fuse(12, done=True).on(storage), store)
    with pytest.raises(DiedError):
        east.finish_recoveries()
    assert contents_of(storage) != before
    east = another(storage, store)
    east.delete_topic(TOPIC)
    left = contents_of(storage).keys() - before.keys()
    assert not {key for key in left if key.endswith(".json")}  # the sweep takes what no manifest ever named
    assert not east.catalog.read().deletions


def test_an_object_that_the_source_deletes_meanwhile_is_left_out_as_its_manifest_then_says() -> None:
    storage = MemoryStore()
    west = source_in(storage, parts=5)
    records = records_in(west)[0]
    expired = False

    def expire(what: str, _key: str) -> None:
        nonlocal expired
        if what == "copy_in" and not expired:
            expired = True
            drop_first(west, 2)

    east = another(WatchedStore(storage, before=expire))
    east.recover_topic(TOPIC, location_in(west))
    assert records_in(east)[0] == records[8:]
    assert east.log(TOPIC).bounds()[0].start == 8
    assert remote_objects(storage) == named_objects(east)


def test_an_object_that_is_gone_for_good_is_named_and_what_is_there_is_done_when_it_is_back() -> None:
    storage = MemoryStore()
    west = source_in(storage, partitions=2)
    lost = next(key for key in contents_of(storage, f"topics/{west.cluster_id}/1/00001/4-") if key.endswith("quet"))
    body = contents_of(storage)[lost]
    east = begun(storage, location_in(west))
    storage.delete([lost])
    (refused,) = east.finish_recoveries().values()
    assert isinstance(refused, MissingObjectError)
    assert refused.offsets == (4, 7)
    assert refused.message.startswith(f"{TOPIC}, partition 1: offsets 4 to 7 are lost: ")
    assert lost in refused.message
    assert refused.hint == (
        f"{location_in(west)} names it. Restore it from a version or copy of the bucket, then: "
        "reconciler run --once --only recoveries. Or delete the topic that recovers."
    )
    with pytest.raises(UserError, match="is being recovered"):
        east.log(TOPIC)
    storage.put(lost, body)
    assert list(east.finish_recoveries().values()) == [None]
    assert records_in(east) == records_in(west)


def test_an_index_that_is_gone_is_found_again_in_its_segment() -> None:
    storage = MemoryStore()
    west = source_in(storage)
    storage.delete([key for key in contents_of(storage) if key.endswith(".index")])
    east = another(storage)
    east.recover_topic(TOPIC, location_in(west))
    assert records_in(east) == records_in(west)
    assert remote_objects(storage) == named_objects(east)


@pytest.mark.parametrize("again", range(5))
def test_two_recoveries_of_one_topic_at_once_make_it_once(again: int) -> None:
    storage, store = MemoryStore(), MemoryStore()
    west = source_in(storage, partitions=4, parts=3 + again)
    begun(storage, location_in(west), store)
    with ThreadPoolExecutor(3) as threads:
        found = list(threads.map(lambda _: another(storage, store).finish_recoveries(), range(3)))
    assert {error for ended in found for error in ended.values()} == {None}
    east = another(storage, store)
    assert records_in(east) == records_in(west)
    assert remote_objects(storage) == named_objects(east, 4)


def test_a_recovery_goes_on_after_dying_before_and_after_each_of_its_writes() -> None:
    """Both stores are counted: nothing is copied twice, and in the end nothing is there that is not named."""
    configs = {"initial.retention.local.target.bytes": "1000000"}
    points = 0
    for done in (False, True):
        for at in itertools.count():
            storage, store = MemoryStore(), MemoryStore()
            west = source_in(storage, partitions=2, parts=2)
            begun(storage, location_in(west), store, **configs)
            fuse = Fuse(at, done=done)
            try:
                another(fuse.on(storage), fuse.on(store)).finish_recoveries()
            except DiedError:
                points += 1
            else:
                assert at > 10
                break
            present = remote_objects(storage)
            watched = WatchedStore(storage)
            east = another(watched, store)
            assert set(east.finish_recoveries().values()) <= {None}
            assert not present & {key for what, key in watched.calls if what == "copy_in"}
            assert records_in(east) == records_in(west)
            assert remote_objects(storage) == named_objects(east, 2)
            fill(east, 1, first=8)
            assert records_in(east)[0][:8] == records_in(west)[0]
    assert points >= 24
