"""What must hold of topics that travel between clusters, and a list in memory of all that was acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.tables import is_closed
from reconciler.embedded.catalog.tiering_state import location_of
from reconciler.embedded.check.check import check_cluster
from reconciler.errors import ReconcilerError, RetryableError
from tests.embedded.mounting.bucket import Bucket
from tests.embedded.mounting.migrants import holders, manifest_owners, owner_of, rows, send
from tests.embedded.mounting.migrating import give_up, process, refusal, tail
from tests.embedded.tiered import BOTH
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.embedded.cluster import EmbeddedCluster
    from tests.embedded.mortal import Fault

CLUSTERS: Final = ("west", "east", "south")
PARTITIONS: Final = 2
GROUP: Final = "shop:readers"
CONFIGS: Final = {**BOTH, "segment.bytes": "14", "retention.ms": "-1", "retention.local.target.bytes": "1"}

Row = tuple[int, bytes | None]
"""Partition and value; values never come twice."""


@dataclass
class Kept:
    """A topic by its location: what its readers must find, and may."""

    acked: set[Row] = field(default_factory=set)
    maybe: list[set[Row]] = field(default_factory=list)
    """What nobody was told of: each of these is there as a whole, or not at all."""
    seen: dict[Row, int] = field(default_factory=dict)
    """The offset of what was read once: it stays there."""
    offsets: set[int] = field(default_factory=set)
    """Of its group in partition 0; several where a commit was not answered."""


@dataclass
class Open:
    """A transaction that is not decided."""

    producer: TransactionalProducer
    location: str
    rows: set[Row]


def finish_all(cluster: EmbeddedCluster) -> None:
    """Do what `run` does for all that was begun."""
    cluster.mounts.finish()
    cluster.finish_transactions()
    cluster.finish_deletions()


class MigrationModel:
    """Three clusters, one bucket, and topics that are made in `west`."""

    def __init__(self) -> None:
        self.bucket = Bucket()
        self.kept: dict[str, Kept] = {}
        self.open: list[Open] = []
        self.serial = 0
        for name in CLUSTERS:
            self.bucket.cluster(name)
        self.make("shop:orders")

    def make(self, full_name: str) -> None:
        """Make a topic."""
        self.bucket.west.create_topic(full_name, partitions=PARTITIONS, configs=CONFIGS)
        self.kept[self.bucket.location(full_name)] = Kept()

    def value(self) -> bytes:
        """Return a value that was never written."""
        self.serial += 1
        return b"v%d" % self.serial

    def entries(self, name: str) -> Iterator[tuple[str, str, TopicEntry]]:
        """Yield location, full name and topic of all that a cluster has."""
        cluster = self.bucket.cluster(name)
        for full_name, topic in cluster.topics().items():
            yield str(location_of(full_name, topic, cluster.cluster_id)), full_name, topic

    def named(self, name: str, location: str) -> str | None:
        """Return what a topic is called on a cluster; `None`: it is not there."""
        return next((full_name for at, full_name, _ in self.entries(name) if at == location), None)

    def homes(self, location: str) -> list[str]:
        """Return the clusters that have a topic, served or not."""
        return [name for name in CLUSTERS if self.named(name, location) is not None]

    def does(
        self,
        name: str,
        do: Callable[[EmbeddedCluster], object],
        fault: Fault | None,
        before: Callable[[str, str], None] = lambda _what, _key: None,
    ) -> ReconcilerError | None:
        """Do something in a process of its own; return what it was refused with. A dead one tells nothing."""
        try:
            return refusal(lambda: do(process(self.bucket, name, fault=fault, before=before)))
        except DiedError:
            return RetryableError("the process is gone", hint="Let another one do it.")

    def is_open(self, name: str, location: str) -> bool:
        """Tell whether clients are served there."""
        return any(at == location and not is_closed(topic) for at, _, topic in self.entries(name))

    # -- what comes before

    def produce_on(self, name: str, location: str, partition: int, fault: Fault | None) -> None:
        full_name, row = self.named(name, location), (partition, self.value())
        assert full_name is not None
        said = self.does(name, lambda it: send(it, full_name, row[1].decode(), partition=partition), fault)
        if said is None:
            self.kept[location].acked.add(row)
        elif isinstance(said, RetryableError):
            self.kept[location].maybe.append({row})
        else:
            assert not self.is_open(name, location), said

    def fill(self, location: str) -> str | None:
        """Have new records in every partition, some of them uploaded; return who serves the topic, if anybody does."""
        name = next((each for each in self.homes(location) if self.is_open(each, location)), None)
        for partition in range(PARTITIONS if name is not None else 0):
            assert name is not None
            self.produce_on(name, location, partition, None)
            self.bucket.cluster(name).upkeep().roll()
            self.bucket.cluster(name).upkeep().upload()
            self.produce_on(name, location, partition, None)
        return name

    def lose(self, owner: str, location: str) -> None:
        kept = self.kept[location]
        kept.maybe += [{row} for row in kept.acked]
        kept.maybe += [{row} for group in kept.maybe for row in group]
        kept.maybe = [group for group in kept.maybe if len(group) == 1]
        kept.acked, kept.offsets = set(), set()
        self.open = [each for each in self.open if each.location != location]
        refusal(lambda: finish_all(self.bucket.cluster(owner)))
        cluster = self.bucket.cluster(owner)
        for migration, entry in cluster.mounts.under_way().items():
            if any(topic.location == location for topic in entry.topics):
                refusal(lambda migration=migration: cluster.mounts.cancel(migration))
                refusal(lambda migration=migration: cluster.mounts.ask(migration, "delete"))
        full_name = self.named(owner, location)
        if full_name is not None:
            cluster.delete_topic(full_name)
        if refusal(lambda: tail(self.bucket.cluster(owner))) is not None:
            give_up(self.bucket, owner)

    # -- the rest

    # -- what must hold

    def look(self, *, reads: bool = True) -> None:
        """See that each topic has one owner at most, and that its readers find what they must, and no more."""
        for location, kept in self.kept.items():
            served = holders(self.bucket, location)
            assert len(served) <= 1, served
            if served:
                assert owner_of(self.bucket, location) == served[0]
                if reads:
                    self._read(served[0], location, kept)

    def _read(self, name: str, location: str, kept: Kept) -> None:
        full_name = self.named(name, location)
        assert full_name is not None
        cluster = self.bucket.cluster(name)
        self._check_rows(
            {(number, value): offset for number, offset, value in rows(cluster, full_name)}, kept, location
        )
        if kept.offsets:
            fetched = cluster.groups.fetch(GROUP, [full_name])
            assert fetched[full_name, 0].offset in kept.offsets

    def _check_rows(self, found: dict[Row, int], kept: Kept, location: str) -> None:
        hidden = self._hidden_by(location, found)
        assert {row for row in kept.acked if row not in hidden} <= found.keys()
        there = found.keys()
        for group in kept.maybe:
            assert group <= there or not group & there or hidden
        assert there <= kept.acked.union(*kept.maybe)
        for row, offset in found.items():
            assert kept.seen.setdefault(row, offset) == offset
        assert len(set(found.items())) == len(found)

    def _hidden_by(self, location: str, found: dict[Row, int]) -> set[Row]:
        """Return what lies behind an open transaction: nobody reads it yet."""
        written = {row[0] for each in self.open if each.location == location for row in each.rows}
        return {row for row in self.kept[location].acked if row[0] in written and row not in found}

    def settle(self) -> None:
        """Bring all that was begun to its end: what cannot end says what it needs, and is given up."""
        self.open.clear()
        self.bucket.clock.now_ms += 1_000_000
        for name in CLUSTERS:
            cluster = self.bucket.cluster(name)
            for error in cluster.mounts.finish().values():
                assert error is None or error.hint
            if cluster.mounts.under_way():
                give_up(self.bucket, name)
            tail(self.bucket.cluster(name))
            assert not self.bucket.cluster(name).mounts.under_way()
        self.look()

    def finish(self) -> None:
        """Let everything end, detach every topic, read it where it was never before, and check what lies about."""
        self.settle()
        for number, location in enumerate(self.kept):
            owner = owner_of(self.bucket, location)
            if owner is not None:
                full_name = self.named(owner, location)
                assert full_name is not None
                self.bucket.cluster(owner).mounts.unmount(full_name)
                tail(self.bucket.cluster(owner))
            assert holders(self.bucket, location) == []
            assert manifest_owners(self.bucket, location, PARTITIONS) <= {"nobody"}
            self.bucket.mounted(location, f"shop:at-last-{number}", "north")
        self.look()
        for name in CLUSTERS:
            found = check_cluster(self.bucket.stores[name], deep=True, storage=self.bucket.storage)
            assert found.errors == 0, found.findings
