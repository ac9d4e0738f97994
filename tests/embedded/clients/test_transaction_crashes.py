"""Dying before and after every write of a transaction's life; then somebody else goes on.

Whoever is told that a transaction is committed finds all of it, always; of one that died, everybody finds all of it or
nothing; and what comes after is never held up.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.embedded.clients.transactions import TransactionState, read_transaction
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.base import ObjectStore
from reconciler.objectstore.directory import DirectoryStore
from reconciler.objectstore.memory import MemoryStore
from tests.embedded.clients.transactional_producers import CHECKOUT, at, fill, plain, writer
from tests.embedded.samples import NOW, cluster_in, contents, ids, values
from tests.embedded.stores import DiedError, WatchedStore, dying

Rows = list[tuple[int, bytes | None]]
Step = Callable[[EmbeddedCluster], object]
Prepared = Callable[[Step], Callable[[], ObjectStore]]

pytestmark = pytest.mark.thorough

PLACES = (("orders", 0), ("orders", 1), ("other", 0))


@pytest.fixture(params=["memory", "directory"])
def prepared(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[Step], Callable[[], ObjectStore]]:
    """Return what prepares a store once and then makes copies of it."""
    numbers = itertools.count()

    def in_memory(prepare: Step) -> Callable[[], ObjectStore]:
        original = MemoryStore()
        prepare(cluster_in(original))
        objects = {listed.key: original.get(listed.key) for listed in original.list("")}

        def copy() -> ObjectStore:
            store = MemoryStore()
            for key, stored in objects.items():
                assert stored is not None
                store.swap(key, stored.body, expected=None)
            return store

        return copy

    def in_folders(prepare: Step) -> Callable[[], ObjectStore]:
        original = tmp_path / "original"
        prepare(cluster_in(DirectoryStore(original)))

        def copy() -> ObjectStore:
            return DirectoryStore(shutil.copytree(original, tmp_path / f"{next(numbers)}"))

        return copy

    return in_memory if request.param == "memory" else in_folders


def opened(store: ObjectStore, now_ms: int = NOW) -> EmbeddedCluster:
    return EmbeddedCluster.open(store, now_ms=lambda: now_ms, new_id=ids())


def crashes(copy: Callable[[], ObjectStore], operation: Step) -> Iterator[ObjectStore]:
    """Yield a store for every point at which the operation can die, as it is left behind."""
    for done in (False, True):
        for number in itertools.count():
            inner = copy()
            try:
                operation(opened(dying(inner, number, done=done)))
            except DiedError:
                yield inner
            else:
                assert number > 0
                break


def two_topics(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("orders", partitions=2)
    cluster.create_topic("other")
    plain(cluster, "before", "before")


def transact(cluster: EmbeddedCluster, ending: str = "commit") -> None:
    """Write to a partition that has records, to one that was never written, and to another topic; in two flushes."""
    producer = writer(cluster)
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.send("orders", "b", partition=1)
    producer.flush()
    producer.send("orders", "c", partition=0)
    producer.send("other", "d", partition=0)
    producer.send_offsets("readers", {("orders", 0): 2})
    producer.flush()
    getattr(producer, ending)()


def abort(cluster: EmbeddedCluster) -> None:
    transact(cluster, "abort")


def began(cluster: EmbeddedCluster) -> None:
    """Leave a transaction open, as a process does that was killed."""
    two_topics(cluster)
    producer = writer(cluster)
    producer.begin()
    producer.send("orders", "a", partition=0)
    producer.send("orders", "b", partition=1)
    producer.send("other", "d", partition=0)
    producer.flush()


def found(cluster: EmbeddedCluster, isolation: str = "read_committed") -> dict[tuple[str, int], Rows]:
    logs = {name: cluster.log(name, isolation=isolation) for name, _ in PLACES}  # type: ignore[arg-type]  # both are
    return {(name, partition): contents(logs[name], partition) for name, partition in PLACES}


def written(cluster: EmbeddedCluster) -> set[bytes | None]:
    return {value for rows in found(cluster).values() for _, value in rows}


def nothing_is_open(cluster: EmbeddedCluster) -> bool:
    heads = [cluster.log(name).read_head(partition) for name, partition in PLACES]
    return all(head is None or (head.transactions == {} and head.bounds.stable == head.end) for head in heads)


def no_part_is_left(cluster: EmbeddedCluster) -> bool:
    """Tell whether every part that is there is named; those of an append that died are the sweep's."""
    heads = [cluster.log(name).read_head(partition) for name, partition in PLACES]
    named = {entry.key for head in heads if head is not None for entry in head.entries}
    return {listed.key for listed in cluster.store.list("topics/")} == named


def by_takeover(store: ObjectStore) -> None:
    writer(opened(store))


def by_time_out(store: ObjectStore) -> None:
    opened(store, NOW + 60_001).finish_transactions()


def by_turns(number: int, store: ObjectStore) -> None:
    """Finish what a crash left: a new producer, or upkeep once the time-out has passed."""
    (by_takeover if number % 2 else by_time_out)(store)


WHOLE = {b"before", b"a", b"b", b"c", b"d"}


def test_a_commit_that_died_is_whole_or_nothing_and_holds_nothing_up(prepared: Prepared) -> None:
    outcomes = []
    for number, store in enumerate(crashes(prepared(two_topics), transact)):
        held = read_transaction(store, CHECKOUT)
        is_decided = held is not None and held[0].state is TransactionState.COMMITTING
        by_turns(number, store)
        cluster = opened(store)
        is_whole = written(cluster) == WHOLE
        assert is_whole or written(cluster) == {b"before"}
        assert is_whole or not is_decided
        assert cluster.groups.read_committed_offsets("readers", ["orders"]) == ({("orders", 0): 2} if is_whole else {})
        assert found(cluster) == found(cluster, "read_uncommitted")
        assert nothing_is_open(cluster)
        fill(writer(cluster), "next")
        assert found(cluster)["orders", 0][-1][1] == b"next"
        outcomes.append(is_whole)
    assert len(outcomes) > 25
    assert {True, False} == set(outcomes)


def test_an_abort_that_died_is_nothing_at_all(prepared: Prepared) -> None:
    left = 0
    for store in crashes(prepared(two_topics), abort):
        left += 1
        cluster = opened(store)
        assert written(cluster) == {b"before"}
        by_turns(left, store)
        assert written(cluster) == {b"before"}
        assert found(cluster) == found(cluster, "read_uncommitted")
        assert nothing_is_open(cluster)
        assert cluster.groups.read_committed_offsets("readers", ["orders"]) == {}
        fill(writer(cluster), "next")
        assert found(cluster)["orders", 0][-1][1] == b"next"
    assert left > 25


@pytest.mark.parametrize(("finish", "again"), [(by_takeover, by_time_out), (by_time_out, by_takeover)])
def test_who_takes_over_may_die_too(
    prepared: Prepared, finish: Callable[[ObjectStore], None], again: Callable[[ObjectStore], None]
) -> None:
    left = 0
    for store in crashes(prepared(began), lambda cluster: finish(cluster.store)):
        left += 1
        again(store)
        again(store)
        cluster = opened(store)
        assert written(cluster) == {b"before"}
        assert found(cluster) == found(cluster, "read_uncommitted")
        assert nothing_is_open(cluster)
    assert left > 10


def test_who_finishes_a_commit_may_die_too(prepared: Prepared) -> None:
    def decided(cluster: EmbeddedCluster) -> None:
        two_topics(cluster)
        swaps = itertools.count()

        def die(what: str, key: str) -> None:
            if what == "swap" and key.startswith("transactions/") and next(swaps) == 3:
                raise DiedError

        with pytest.raises(DiedError):
            transact(opened(WatchedStore(cluster.store, after=die)))

    left = 0
    for store in crashes(prepared(decided), lambda cluster: cluster.finish_transactions()):
        left += 1
        by_takeover(store)
        cluster = opened(store)
        assert written(cluster) == WHOLE
        assert cluster.groups.read_committed_offsets("readers", ["orders"]) == {("orders", 0): 2}
        assert nothing_is_open(cluster)
    assert left > 8


def test_what_was_acknowledged_stays_whatever_dies_after_it(prepared: Prepared) -> None:
    def acknowledged(cluster: EmbeddedCluster) -> None:
        two_topics(cluster)
        transact(cluster)

    for store in crashes(prepared(acknowledged), abort):
        rows = found(opened(store))
        assert rows["orders", 0] == [(0, b"before"), (1, b"before"), (2, b"a"), (3, b"c")]
        assert rows["orders", 1] == [(0, b"b")]
        assert rows["other", 0] == [(0, b"d")]


def test_two_may_finish_the_same_at_once(prepared: Prepared) -> None:
    copy = prepared(began)
    for number in itertools.count():
        store, writes = copy(), itertools.count()

        def intrude(_what: str, _key: str, writes: Iterator[int] = writes, number: int = number) -> None:
            if next(writes) == number:
                by_time_out(store)  # noqa: B023 - it is called within the turn that made the store

        late = at(opened(WatchedStore(store, before=intrude)), NOW + 60_001)
        late.finish_transactions()
        cluster = opened(store)
        assert written(cluster) == {b"before"}
        assert nothing_is_open(cluster)
        assert no_part_is_left(cluster)
        if next(writes) <= number:
            assert number == 8
            break


def test_an_append_under_own_numbers_that_died_is_repeated_and_there_once(prepared: Prepared) -> None:
    lines = [b"%d" % number for number in range(6)]

    def load(cluster: EmbeddedCluster) -> None:
        producer = cluster.sequenced_producer("loader")
        first = producer.last_sequences("orders").get(1, -1) + 1
        for at_line in range(first, 6, 2):
            producer.append("orders", 1, values(*lines[at_line : at_line + 2]), sequence=at_line)

    left = 0
    for store in crashes(prepared(two_topics), load):
        left += 1
        load(opened(store))
        assert [value for _, value in found(opened(store))["orders", 1]] == lines
    assert left > 10
