"""Clusters on one bucket as a value: copied, then driven by a process that dies, loses answers or meets a rival."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from reconciler.archives import recoverable
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import NOBODY, read_manifest, remote_partition
from reconciler.archives.ownership import OwnershipState, read_ownership
from reconciler.embedded.catalog import commits
from reconciler.embedded.catalog.tables import is_served
from reconciler.embedded.catalog.tiering_state import get_topic_location
from reconciler.embedded.clients.transactions import TransactionState, decide_transaction
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.maintenance import chores
from reconciler.embedded.segments import head
from reconciler.embedded.tiered import upload
from reconciler.errors import ReconcilerError, RetryableError, UnansweredError
from reconciler.objectstore import register
from reconciler.records.log import Digest, OffsetRange
from reconciler.runtime import threads
from tests.embedded.deaths import DAY_MS, Fault, Fuse, MortalStore
from tests.embedded.maintenance.tiny_segments import Clock, copied
from tests.embedded.mounts.shared_bucket import CLICKS, Bucket, Mount
from tests.embedded.samples import contents
from tests.embedded.stores import DiedError
from tests.embedded.tiered.tiered_cluster import BOTH

if TYPE_CHECKING:
    import pytest

    from reconciler.embedded.clients.transactional_producer import TransactionalProducer

Do = Callable[[EmbeddedCluster], object]

HOWS: Final[tuple[Literal["dies before", "no answer"], ...]] = ("dies before", "no answer")
"""One write comes after the other: who dies after one has died before the next."""


class Inline(Executor):
    """Does what it is given at once: the n-th write is the same one every time, and no thread is waited for."""

    def __init__(self, *_asked: object, **_named: object) -> None:
        """Take whatever a pool takes."""

    def submit(self, call: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(call(*given, **named))
        except Exception as error:  # noqa: BLE001 - whoever asks for the result gets it
            done.set_exception(error)
        return done


def without_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what is done side by side be done one after the other; nothing is damaged here, so none is sought."""
    for module in (threads, chores, head, upload, recoverable):
        monkeypatch.setattr(module, "ThreadPoolExecutor", Inline)
    for module in (register, commits):
        monkeypatch.setattr(module, "check_shape", lambda _found, _shape: None)


class Silent(Fuse):
    """Where an answer is lost, says so as a store does: whoever swaps a register looks what became of it."""

    def after(self, what: str, key: str) -> None:
        try:
            super().after(what, key)
        except RetryableError as error:
            raise UnansweredError(error.message, hint=error.hint) from error


def again(bucket: Bucket) -> Bucket:
    """Return the same clusters over copies of their stores."""
    stores = {name: copied(store) for name, store in bucket.stores.items()}
    return Bucket(copied(bucket.storage), Clock(bucket.clock.now_ms), dict(stores), bucket.new_id)


def process(
    bucket: Bucket,
    name: str,
    *,
    fault: Fault | None = None,
    before: Callable[[str, str], None] = lambda _what, _key: None,
    after: Callable[[str, str], None] = lambda _what, _key: None,
    ahead_ms: int = 0,
) -> EmbeddedCluster:
    """Open a cluster as one process does whose writes, to both stores, are counted and may be its last."""
    fuse, stores = Silent(), []

    def write(what: str, key: str) -> None:
        before(what, key)
        fuse.before(what, key)

    def written(what: str, key: str) -> None:
        fuse.after(what, key)
        after(what, key)

    for inner in (bucket.stores[name], bucket.storage):
        store = MortalStore(inner)
        store.fuse, store.before, store.after, store.ahead_ms = fuse, write, written, ahead_ms
        stores.append(store)
    cluster = EmbeddedCluster.open(stores[0], now_ms=bucket.clock, new_id=bucket.new_id, storage=stores[1])
    fuse.arm(fault)
    return cluster


def deaths(bucket: Bucket, name: str, do: Do, *, hows: tuple[str, ...] = HOWS) -> Iterator[Bucket]:
    """Yield what is left behind for every write at which a process of that cluster can die or lose its answer."""
    for how in hows:
        for at in itertools.count():
            left, reached = again(bucket), False

            def seen(_what: str, _key: str, at: int = at) -> None:
                nonlocal writes, reached
                writes, reached = writes + 1, reached or writes == at

            writes = 0
            try:
                do(process(left, name, fault=Fault(at, how), before=seen))  # type: ignore[arg-type]  # one of HOWS
            except (DiedError, RetryableError):
                assert reached
            if not reached:
                assert at > 0
                break
            yield left


def rivals(bucket: Bucket, name: str, do: Do, rival: Callable[[Bucket], object]) -> Iterator[tuple[Bucket, object]]:
    """Yield what is left for every write that a rival comes right before, and what the process said, if it failed."""
    for at in itertools.count():
        left, writes, met = again(bucket), itertools.count(), False

        def meet(_what: str, _key: str, at: int = at, left: Bucket = left, writes: Iterator[int] = writes) -> None:
            nonlocal met
            if not met and next(writes) == at:
                met = True
                rival(left)

        said: object = None
        try:
            do(process(left, name, before=meet))
        except Exception as error:  # noqa: BLE001 - whoever asked judges it
            said = error
        if not met:
            assert at > 0
            break
        yield left, said


def tail(cluster: EmbeddedCluster) -> None:
    """Do what `run` does until nothing is left to be finished."""
    assert set(cluster.mounts.finish().values()) <= {None}
    cluster.finish_transactions()
    cluster.finish_deletions()


def drive(cluster: EmbeddedCluster) -> None:
    """Drive what is in progress, and let it fail."""
    for number in cluster.mounts.list_unfinished():
        cluster.mounts.drive(number)


def refusal(do: Callable[[], object]) -> ReconcilerError | None:
    """Return what doing something was refused with; `None`: it was done."""
    try:
        do()
    except ReconcilerError as error:
        return error
    return None


def give_up(bucket: Bucket, name: str) -> None:
    """Cancel what is in progress, and delete what is left of it."""
    cluster = bucket.cluster(name)
    for number, migration in cluster.mounts.list_unfinished().items():
        if migration.state not in {"planned", "finished", "cancelled"}:
            cluster.mounts.cancel(number)
        cluster.mounts.ask(number, "delete")
    tail(cluster)
    assert not cluster.mounts.list_unfinished()


# Two topics with all that may be open in them, and what must hold of them wherever they go.

MigrantsDo = Callable[[EmbeddedCluster], object]


ORDERS: Final = "shop:orders"
GROUP: Final = "shop:readers"
PARTITIONS: Final = 3
Rows = list[tuple[int, int, bytes | None]]


def swept(bucket: Bucket, name: str) -> None:
    """Sweep both stores of a cluster as they will be in two days."""
    process(bucket, name, ahead_ms=2 * DAY_MS).sweep()


def send(cluster: EmbeddedCluster, full_name: str, *values: str, partition: int = 0) -> None:
    with cluster.producer() as producer:
        for value in values:
            producer.send(full_name, value, key=value, partition=partition)


def undecided(
    cluster: EmbeddedCluster, name: str, full_name: str, *values: str, partition: int = 0
) -> TransactionalProducer:
    """Return a producer that has written in a transaction, and is heard of no more."""
    producer = cluster.producer(name, transaction_timeout_ms=900_000)
    producer.init_transactions()
    producer.begin()
    for value in values:
        producer.send(full_name, value, partition=partition)
    producer.flush()
    return producer


def committing(cluster: EmbeddedCluster, name: str, full_name: str, *values: str, partition: int = 0) -> None:
    """Leave a transaction that is decided, and of which nothing is carried out."""
    producer = undecided(cluster, name, full_name, *values, partition=partition)
    decide_transaction(cluster.store, producer._identity, TransactionState.COMMITTING, {}, mark=f"decided-{name}")


def filled() -> Bucket:
    """Return `west` with two topics: one of three partitions with all that may be open, one partition never written."""
    bucket = Bucket()
    west, _ = bucket.west, bucket.east
    west.create_topic(CLICKS, partitions=PARTITIONS, configs=BOTH)
    west.create_topic(ORDERS, configs={**BOTH, "segment.bytes": "14"})
    for number in range(3):
        send(west, ORDERS, f"o{number}")
    send(west, CLICKS, "a", "b")
    west.upkeep().roll()
    west.upkeep().upload()
    send(west, CLICKS, "c")
    undecided(west, "shop:open", CLICKS, "never")
    committing(west, "shop:decided", CLICKS, "d", "e", partition=1)
    west.groups.commit(GROUP, {(CLICKS, 0): 2, (ORDERS, 0): 1})
    return bucket


EXPECTED: Final[dict[str, Rows]] = {
    CLICKS: [(0, 0, b"a"), (0, 1, b"b"), (0, 2, b"c"), (1, 0, b"d"), (1, 1, b"e")],
    ORDERS: [(0, 0, b"o0"), (0, 1, b"o1"), (0, 2, b"o2")],
}
"""What is readable of `filled` once its transactions are settled."""


def rows(cluster: EmbeddedCluster, full_name: str) -> Rows:
    """Return what is readable, by partition, offset and value."""
    log = cluster.log(full_name)
    return [(number, *row) for number in sorted(log.read_bounds()) for row in contents(log, number)]


def digests(cluster: EmbeddedCluster, full_name: str) -> dict[int, Digest]:
    """Return what is readable of each partition as heads and manifests have it; each object they name is there."""
    log, found = cluster.log(full_name), {}
    for number, bounds in log.read_bounds().items():
        whole = OffsetRange(bounds.start, bounds.find_readable_end("read_committed"))
        for piece in log.iter_part_ranges(number, whole):
            assert piece.store.get(piece.entry.key) is not None
        found[number] = sum(log.read_digests(number, whole), Digest())
    return found


@cache
def expected() -> dict[str, dict[int, Digest]]:
    """Return what is readable of `filled` at the end, having read every record of it once."""
    bucket = filled()
    locations = places(bucket, CLICKS, ORDERS)
    mount_both(detached(bucket), locations)
    assert {name: rows(bucket.east, name) for name in EXPECTED} == EXPECTED
    return {name: digests(bucket.east, name) for name in EXPECTED}


def detached(bucket: Bucket) -> Bucket:
    tail_of = bucket.west
    tail_of.mounts.unmount(CLICKS, ORDERS)
    tail(tail_of)
    return bucket


def places(bucket: Bucket, *names: str, cluster: str = "west") -> list[str]:
    return [bucket.location(name, cluster) for name in names]


def holders(bucket: Bucket, *locations: str) -> list[str]:
    """Return the clusters that serve what lies at one of these locations, one name for each topic."""
    found = []
    for name in bucket.stores:
        cluster = bucket.cluster(name)
        topics = cluster.topics().items()
        served = {
            str(get_topic_location(each, topic, cluster.cluster_id)) for each, topic in topics if is_served(topic)
        }
        found += [name for location in locations if location in served]
    return found


def owner_of(bucket: Bucket, location: str) -> str | None:
    """Return the name of the cluster that a location's register gives it to; `None`: it is unmounted."""
    where = TopicLocation.parse(location)
    found = read_ownership(bucket.storage, where)
    if found is not None and found.state is OwnershipState.DETACHED:
        return None
    owner = where.cluster_id if found is None else found.owner
    return next(name for name in bucket.stores if bucket.cluster(name).cluster_id == owner)


def manifest_owners(bucket: Bucket, location: str, partitions: int) -> set[str]:
    """Return who owns the manifests there are of a topic: names of clusters, or `NOBODY`."""
    names = {bucket.cluster(name).cluster_id: name for name in bucket.stores} | {NOBODY: NOBODY}
    found = (
        read_manifest(bucket.storage, remote_partition(TopicLocation.parse(location), number))
        for number in range(partitions)
    )
    return {names[each.owner] for each in found if each is not None}


def look(bucket: Bucket, *locations: str) -> None:
    """See that no topic is served twice, nor by another cluster than the one it is given to."""
    for location in locations:
        served = holders(bucket, location)
        assert len(served) <= 1, served
        if served:
            assert owner_of(bucket, location) == served[0]


def mount_both(bucket: Bucket, locations: list[str], cluster: str = "east") -> None:
    """Mount `CLICKS` and `ORDERS`, in one migration, to the end."""
    opened = bucket.cluster(cluster)
    opened.mounts.mount(Mount(locations[0], CLICKS), Mount(locations[1], ORDERS))
    tail(opened)


def check_mounted(bucket: Bucket, locations: list[str], cluster: str = "east") -> None:
    """See that both topics are whole on a cluster, are its own alone, and can be written to."""
    opened = bucket.cluster(cluster)
    assert holders(bucket, *locations) == [cluster] * len(locations)
    topics = opened.topics()
    for location, full_name in zip(locations, (CLICKS, ORDERS), strict=True):
        assert digests(opened, full_name) == expected()[full_name]
        assert owner_of(bucket, location) == cluster
        assert manifest_owners(bucket, location, PARTITIONS) == {cluster}
        last = topics[full_name].partitions - 1
        before = opened.log(full_name).read_bounds()[last].end
        send(opened, full_name, "after", partition=last)
        assert opened.log(full_name).read_bounds()[last].end == before + 1
    fetched = opened.groups.fetch(GROUP)
    assert {place: each.offset for place, each in fetched.items()} == {(CLICKS, 0): 2, (ORDERS, 0): 1}
    for name in bucket.stores:
        assert not bucket.cluster(name).mounts.list_unfinished()
        assert set(bucket.cluster(name).upkeep().upload().errors) == set()


__all__ = ["CLICKS", "Bucket", "Mount"]
