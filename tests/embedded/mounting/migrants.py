"""Two topics with all that may be open in them, and what must hold of them wherever they go."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.tables import is_served
from reconciler.embedded.catalog.tiering_state import TopicLocation, location_of
from reconciler.embedded.clients.transactions import State, decide
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.tiered.manifest import NOBODY, read_manifest
from reconciler.embedded.tiered.ownership import Owning, read_ownership
from reconciler.embedded.tiered.remote_tier import remote_partition
from reconciler.records.log import Digest, OffsetRange
from tests.embedded.mortal import DAY_MS
from tests.embedded.mounting.bucket import CLICKS, Bucket, Mount
from tests.embedded.mounting.migrating import process, tail
from tests.embedded.samples import contents
from tests.embedded.tiered import BOTH

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.embedded.clients.transactional_producer import TransactionalProducer

    Do = Callable[[EmbeddedCluster], object]


ORDERS: Final = "shop:orders"
GROUP: Final = "shop:readers"
PARTITIONS: Final = 3
Rows = list[tuple[int, int, bytes | None]]


def swept(bucket: Bucket, name: str) -> None:
    """Sweep both stores of a cluster as they will be in two days."""
    process(bucket, name, ahead_ms=2 * DAY_MS).sweep()


def send(cluster: EmbeddedCluster, full_name: str, *values: str, partition: int = 0) -> None:
    """Append records; each is acknowledged."""
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
    decide(cluster.store, producer._identity, State.COMMITTING, {}, mark=f"decided-{name}")


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
    return [(number, *row) for number in sorted(log.bounds()) for row in contents(log, number)]


def digests(cluster: EmbeddedCluster, full_name: str) -> dict[int, Digest]:
    """Return what is readable of each partition as heads and manifests have it; each object they name is there."""
    log, found = cluster.log(full_name), {}
    for number, bounds in log.bounds().items():
        whole = OffsetRange(bounds.start, bounds.readable_end("read_committed"))
        for piece in log.stretches(number, whole):
            assert piece.store.get(piece.entry.key) is not None
        found[number] = sum(log.digests(number, whole), Digest())
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
    """Return it with both topics detached."""
    tail_of = bucket.west
    tail_of.mounts.unmount(CLICKS, ORDERS)
    tail(tail_of)
    return bucket


def places(bucket: Bucket, *names: str, cluster: str = "west") -> list[str]:
    """Return where topics lie in object storage."""
    return [bucket.location(name, cluster) for name in names]


def holders(bucket: Bucket, *locations: str) -> list[str]:
    """Return the clusters that serve what lies at one of these locations, one name for each topic."""
    found = []
    for name in bucket.stores:
        cluster = bucket.cluster(name)
        topics = cluster.topics().items()
        served = {str(location_of(each, topic, cluster.cluster_id)) for each, topic in topics if is_served(topic)}
        found += [name for location in locations if location in served]
    return found


def owner_of(bucket: Bucket, location: str) -> str | None:
    """Return the name of the cluster that a location's register gives it to; `None`: it lies detached."""
    where = TopicLocation.parse(location)
    found = read_ownership(bucket.storage, where)
    if found is not None and found.state is Owning.DETACHED:
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
        before = opened.log(full_name).bounds()[last].end
        send(opened, full_name, "after", partition=last)
        assert opened.log(full_name).bounds()[last].end == before + 1
    fetched = opened.groups.fetch(GROUP)
    assert {place: each.offset for place, each in fetched.items()} == {(CLICKS, 0): 2, (ORDERS, 0): 1}
    for name in bucket.stores:
        assert not bucket.cluster(name).mounts.under_way()
        assert set(bucket.cluster(name).upkeep().upload().errors) == set()


__all__ = ["CLICKS", "Bucket", "Mount"]
