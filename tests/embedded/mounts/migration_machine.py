"""What must hold of topics that travel between clusters, and a list in memory of all that was acknowledged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from reconciler.archives import archive, ownership
from reconciler.archives.archive import release_archive
from reconciler.archives.location import TopicLocation
from reconciler.archives.manifest import ManifestHandover
from reconciler.archives.ownership import open_ownership_register, read_ownership
from reconciler.embedded.catalog import migration_tables
from reconciler.embedded.catalog.migration_tables import complete_state
from reconciler.embedded.catalog.tables import is_closed
from reconciler.embedded.catalog.tiering_state import get_topic_location
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.clients import topic_log
from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.embedded.mounts import inbound, outbound
from reconciler.embedded.mounts.inbound import InboundSteps
from reconciler.embedded.mounts.outbound import OutboundSteps, TopicFlush
from reconciler.errors import ProducerFencedError, ReconcilerError, RetryableError
from reconciler.lifecycles import UNMOUNT, MigrationState, Move
from tests.embedded.deaths import DAY_MS, Fault
from tests.embedded.mounts.migrants import (
    drive,
    give_up,
    holders,
    manifest_owners,
    owner_of,
    process,
    refusal,
    rows,
    send,
    tail,
)
from tests.embedded.mounts.shared_bucket import Bucket, Mount
from tests.embedded.stores import DiedError
from tests.embedded.tiered.tiered_cluster import BOTH

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import MigrantEntry, TopicEntry
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer


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
        self.bucket.west.create_topic(full_name, partitions=PARTITIONS, configs=CONFIGS)
        self.kept[self.bucket.location(full_name)] = Kept()

    def value(self) -> bytes:
        self.serial += 1
        return b"v%d" % self.serial

    def entries(self, name: str) -> Iterator[tuple[str, str, TopicEntry]]:
        """Yield location, full name and topic of all that a cluster has."""
        cluster = self.bucket.cluster(name)
        for full_name, topic in cluster.topics().items():
            yield str(get_topic_location(full_name, topic, cluster.cluster_id)), full_name, topic

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
        for migration, entry in cluster.mounts.list_unfinished().items():
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
            if cluster.mounts.list_unfinished():
                give_up(self.bucket, name)
            tail(self.bucket.cluster(name))
            assert not self.bucket.cluster(name).mounts.list_unfinished()
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


# A state machine that sends topics around three clusters, with a death or a rival at any write, against a model.


JOBS = ("roll", "upload", "merge", "retain", "compact")
VERBS = ("prepare", "execute", "finish", "delete", "cancel")
RIVALS = ("finish", "cancel", "produce", "mount elsewhere", "upkeep", "sweep")

names = st.sampled_from(CLUSTERS)
partitions = st.integers(0, PARTITIONS - 1)
which = st.integers(0, 3)
hows = st.sampled_from(["dies before", "dies after", "no answer"])
faults = st.one_of(st.none(), st.builds(Fault, st.integers(0, 6), hows), st.builds(Fault, st.integers(0, 40), hows))


class MigrationMachine(MigrationModel, RuleBasedStateMachine):
    """Topics of two partitions, and whoever has them."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        MigrationModel.__init__(self)

    def _one(self, number: int) -> str:
        locations = sorted(self.kept)
        return locations[number % len(locations)]

    # -- clients

    @rule(number=which, partition=partitions, fault=faults)
    def produce(self, number: int, partition: int, fault: Fault | None) -> None:
        """Append a record wherever the topic is; it is refused where it is not served."""
        location = self._one(number)
        for name in self.homes(location):
            self.produce_on(name, location, partition, fault)
        self.look()

    @rule(number=which)
    def begin(self, number: int) -> None:
        location = self._one(number)
        name = next((each for each in self.homes(location) if self.is_open(each, location)), None)
        full_name = None if name is None else self.named(name, location)
        if name is None or full_name is None:
            return
        producer = process(self.bucket, name).producer(f"shop:tx{self.serial}", transaction_timeout_ms=900_000)
        producer.init_transactions()
        producer.begin()
        written = {(partition, self.value()) for partition in range(PARTITIONS)}
        for partition, value in sorted(written):
            producer.send(full_name, value, key=value, partition=partition)
        producer.flush()
        self.open.append(Open(producer, location, written))

    @precondition(lambda self: self.open)
    @rule(number=which, commits=st.booleans())
    def end(self, number: int, commits: bool) -> None:  # noqa: FBT001 - hypothesis names its arguments
        """Commit or abort one; what a migration has aborted is refused."""
        was = self.open.pop(number % len(self.open))
        said = refusal(was.producer.commit if commits else was.producer.abort)
        if commits and said is None:
            self.kept[was.location].acked |= was.rows
        elif commits and not isinstance(said, ProducerFencedError):
            self.kept[was.location].maybe.append(was.rows)
        self.look()

    @rule(number=which, offset=st.integers(0, 5), fault=faults)
    def commit_offsets(self, number: int, offset: int, fault: Fault | None) -> None:
        """Say where a group goes on, within what there is."""
        location = self._one(number)
        name = self.fill(location)
        full_name = None if name is None else self.named(name, location)
        if name is None or full_name is None:
            return
        offset = min(offset, self.bucket.cluster(name).log(full_name).read_bounds()[0].end)
        said = self.does(name, lambda it: it.groups.commit(GROUP, {(full_name, 0): offset}), fault)
        kept = self.kept[location]
        if said is None:
            kept.offsets = {offset}
        elif kept.offsets:
            kept.offsets |= {offset}
        self.look()

    # -- migrations

    @rule(number=which, fault=faults, is_driven=st.booleans())
    def unmount(self, number: int, fault: Fault | None, is_driven: bool) -> None:  # noqa: FBT001 - as above
        """Send a topic to sleep, or begin to."""
        location = self._one(number)
        name = self.fill(location)
        full_name = None if name is None else self.named(name, location)
        if name is not None and full_name is not None:
            self.does(name, lambda it: self._begun(it, it.mounts.unmount(full_name, is_automatic=is_driven)), fault)
            self.look()

    @rule(number=which, to=names, fault=faults, is_driven=st.booleans())
    def mount(self, number: int, to: str, fault: Fault | None, is_driven: bool) -> None:  # noqa: FBT001 - as above
        mount = Mount(self._detached(number), f"shop:on-{to}-{number}")
        self.does(to, lambda it: self._begun(it, it.mounts.mount(mount, is_automatic=is_driven)), fault)
        self.look()

    def _detached(self, number: int) -> str:
        """Have a topic detached where that is possible; return its location."""
        location = self._one(number)
        name = self.fill(location)
        full_name = None if name is None else self.named(name, location)
        if name is not None and full_name is not None:
            self.does(name, lambda it: self._begun(it, it.mounts.unmount(full_name)), None)
        return location

    def _begun(self, cluster: EmbeddedCluster, number: int) -> None:
        cluster.mounts.drive(number)

    @rule(name=st.sampled_from(CLUSTERS), verb=st.sampled_from(VERBS), fault=faults)
    def ask(self, name: str, verb: str, fault: Fault | None) -> None:
        """Move what waits to be told, or cancel it."""

        def all_of(cluster: EmbeddedCluster) -> None:
            for migration in cluster.mounts.list_unfinished():
                cluster.mounts.ask(migration, verb)
                cluster.mounts.drive(migration)

        for each in (name, *CLUSTERS):
            if self.bucket.cluster(each).mounts.list_unfinished():
                self.does(each, all_of, fault)
                break
        self.look()

    @rule(name=names, fault=faults)
    def finish_all(self, name: str, fault: Fault | None) -> None:
        """Do what `run` does for all that was begun."""
        for each in (name, *CLUSTERS):
            if self.bucket.cluster(each).mounts.list_unfinished():
                self.does(each, finish_all, fault)
                break
        self.look()

    @rule(number=which, to=names, at=st.integers(0, 30), rival=st.sampled_from(RIVALS), is_mount=st.booleans())
    def overtake(self, number: int, to: str, at: int, rival: str, is_mount: bool) -> None:  # noqa: FBT001 - as above
        """Stop before a write of whoever drives, let another do all of something, and go on."""
        writes = itertools.count()
        location = self._detached(number) if is_mount else self._one(number)
        name = to if is_mount else self.fill(location)
        full_name = None if name is None else self.named(name, location)
        if name is None:
            return

        def meet(_what: str, _key: str) -> None:
            if next(writes) == at:
                self._rival(rival, name, number, to)

        if is_mount:
            mount = Mount(location, f"shop:on-{to}-{number}")
            self.does(to, lambda it: it.mounts.mount(mount), None)
        elif full_name is not None:
            self.does(name, lambda it: it.mounts.unmount(full_name), None)
        self.does(name, drive, None, before=meet)
        self.look()

    def _rival(self, rival: str, name: str, number: int, other: str) -> None:
        match rival:
            case "finish":
                self.finish_all(name, None)
            case "cancel":
                self.ask(name, "cancel", None)
            case "produce":
                self.produce(number, 0, None)
            case "mount elsewhere":
                self.finish_all(name, None)
                self.mount(number, CLUSTERS[CLUSTERS.index(other) - 1], None, is_driven=True)
                self.produce(number, 1, None)
            case "upkeep":
                self.upkeep(name, "upload", None)
            case _:
                self.sweep(other, None)

    @rule(number=which, fault=faults)
    def release(self, number: int, fault: Fault | None) -> None:
        """Take a topic from its owner, who hears of it and gives up what is left; what was not uploaded is lost."""
        location = self._one(number)
        self.fill(location)
        owner, where = owner_of(self.bucket, location), TopicLocation.parse(location)
        if owner is None:
            return
        found = read_ownership(self.bucket.storage, where)
        owner_id = where.cluster_id if found is None else found.owner
        assert owner_id is not None

        def released(cluster: EmbeddedCluster) -> None:
            assert cluster.storage is not None
            release_archive(cluster.storage, where, owner_id, now_ms=cluster.now_ms())

        said = self.does("south", released, fault)
        if said is not None and owner_of(self.bucket, location) is not None:
            said = self.does("south", released, None)
        if said is None or owner_of(self.bucket, location) is None:
            self.lose(owner, location)
        self.look()

    @rule(name=names, job=st.sampled_from(JOBS), fault=faults)
    def upkeep(self, name: str, job: str, fault: Fault | None) -> None:
        """Do one job of a pass, a while later."""
        self.bucket.clock.now_ms += 0 if self.open else 3_600_000

        def job_of(cluster: EmbeddedCluster) -> None:
            tended = getattr(cluster.upkeep(), job)()
            assert tended.errors == [] or fault is not None, tended.errors

        self.does(name, job_of, fault)
        self.look(reads=False)

    @rule(name=names, fault=faults)
    def sweep(self, name: str, fault: Fault | None) -> None:
        """Sweep both stores as they will be in two days."""

        def swept(_cluster: EmbeddedCluster) -> None:
            process(self.bucket, name, fault=fault, ahead_ms=2 * DAY_MS).sweep()

        self.does(name, swept, None)
        self.look()

    @precondition(lambda self: len(self.kept) < 3)
    @rule()
    def another_topic(self) -> None:
        self.make(f"shop:more{len(self.kept)}-{self.serial}")
        self.serial += 1

    @rule(name=names, number=which, fault=faults)
    def alter(self, name: str, number: int, fault: Fault | None) -> None:
        full_name = self.named(name, self._one(number))
        if full_name is not None:
            self.does(
                name, lambda it: it.alter_topic(full_name, {"max.message.bytes": str(1_000_000 + self.serial)}), fault
            )

    @precondition(lambda self: len(self.kept) > 1)
    @rule(number=which, fault=faults)
    def delete(self, number: int, fault: Fault | None) -> None:
        """Delete a topic for good; what migrates refuses that."""
        location = self._one(number)
        name = next((each for each in self.homes(location) if self.is_open(each, location)), None)
        full_name = None if name is None else self.named(name, location)
        if name is None or full_name is None:
            return
        self.does(name, lambda it: it.delete_topic(full_name), fault)
        if self.named(name, location) is None:
            self.bucket.cluster(name).finish_deletions()
            del self.kept[location]
            self.open = [each for each in self.open if each.location != location]
        self.look()

    def teardown(self) -> None:
        """Everything comes to an end, and everything acknowledged is read on a cluster that never had it."""
        self.finish()


# Deliberately broken variants of mounting: each leaves out one rule of what is written, asked or read first.


Patched = tuple[Any, str, Any]
"""Where, the name there, and what is put in its place."""

_S: Final = MigrationState


@dataclass(frozen=True, slots=True)
class Broken:
    """A variant: what is put in place of what, and which of the points notices it."""

    noticed: str
    patches: tuple[Patched, ...]

    @contextmanager
    def applied(self) -> Iterator[None]:
        with ExitStack() as stack:
            for where, name, by in self.patches:
                stack.enter_context(patch.object(where, name, by))
            yield


_update, _work, _detach, _cut_over, _upload = (
    ownership.update_ownership,
    OutboundSteps._run_state,
    OutboundSteps._detach,
    InboundSteps._cut_over,
    TopicFlush.upload_missing,
)
_seal, _flush, _hand_over = OutboundSteps._seal_heads, OutboundSteps._upload_topic, outbound.change_topic_manifest


def _nothing(*_asked: Any, **_named: Any) -> None:
    """Leave it out."""


def _reads_and_puts(storage: Any, location: Any, change: Any, *, mark: str) -> None:
    """Write what was decided over whatever is there by then."""
    storage.read_clock_ms()
    ahead = _Ahead(storage)
    _update(ahead, location, change, mark=mark)
    key = open_ownership_register(storage, location).key
    if ahead.body is not None:
        storage.put(key, ahead.body)


class _Ahead:
    """Keeps what is swapped, to be put later."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.body: bytes | None = None

    def swap(self, _key: str, body: bytes, *, expected: Any) -> Any:
        self.body = body
        return expected

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _seals_nothing(_self: OutboundSteps, _topic: MigrantEntry) -> set[tuple[str, int]]:
    return set()


def _seals_early(self: OutboundSteps, topic: MigrantEntry, rounds: int | None = None) -> None:
    _flush(self, topic, rounds)
    if self.migration.state == _S.PREPARING:
        self._end_transactions(_seal(self, topic))


def _detaches_first(self: OutboundSteps, topic: MigrantEntry) -> None:
    later: list[tuple[Any, ...]] = []

    def soon(*asked: Any) -> None:
        later.append(asked)

    def handed(_self: ManifestHandover, _partitions: Any, _change: Any) -> dict[int, Any]:
        return {}

    with patch.object(outbound, "change_topic_manifest", soon), patch.object(ManifestHandover, "__call__", handed):
        _detach(self, topic)
    _detach(self, topic)


def _removes_first(self: OutboundSteps, state: MigrationState) -> None:
    if state is not _S.CUT_OVER:
        _work(self, state)
        return
    here = self._list_attached_topics()
    catalog = self.context.catalog.read()
    self._commit_state(_S.FINISHED)
    with (
        patch.object(self.context.catalog, "read", lambda: catalog),
        patch.object(OutboundSteps, "_check_current", _nothing),
    ):
        for topic in here:
            _detach(self, topic)


def _opens_first(self: InboundSteps) -> None:
    means, begun = self.context, self.migration
    catalog = means.catalog.read()
    means.catalog.commit(lambda draft: complete_state(draft, self.number, begun, _S.FINISHED, now_ms=means.now_ms()))
    with patch.object(means.catalog, "read", lambda: catalog):
        for topic in begun.topics:
            self._take_over(topic)


def _unasked(self: ManifestHandover, partitions: Any, change: Any) -> dict[int, Any]:
    return _handed(replace(self, check=lambda: None), partitions, change)


_handed = ManifestHandover.__call__


def _told_unasked(_self: Any, _found: Any, told: Any) -> Any:
    return told


def _closed_segments_alone(self: TopicFlush, rounds: int | None = None) -> int:
    return _upload(self, 0 if rounds is None else rounds)


def _does_not_fence(storage: Any, location: Any, cluster_id: str, claim: str, now_ms: int) -> None:
    with patch.object(ownership, "_claim_mark", lambda claim: f"another-{claim}"):
        _unclaim(storage, location, cluster_id, claim, now_ms)


_unclaim = ownership.unclaim_topic

_CANCELS_LATE: Final = replace(UNMOUNT, moves=(*UNMOUNT.moves, Move(_S.CUT_OVER, "cancel", _S.CANCELING)), refusals=())

VARIANTS: Final[Mapping[str, Broken]] = {
    "a claim is read and put": Broken("race", ((ownership, "update_ownership", _reads_and_puts),)),
    "no head is sealed": Broken("append", ((OutboundSteps, "_seal_heads", _seals_nothing),)),
    "heads are sealed before the catalog says so": Broken(
        "append", ((OutboundSteps, "_upload_topic", _seals_early), (OutboundSteps, "_seal_heads", _seals_nothing))
    ),
    "a topic is detached before its manifests are let go": Broken(
        "at once", ((OutboundSteps, "_detach", _detaches_first),)
    ),
    "a topic is removed before it is detached": Broken(
        "unmount died", ((OutboundSteps, "_run_state", _removes_first),)
    ),
    "a topic opens before it is taken over": Broken("mount died", ((InboundSteps, "_cut_over", _opens_first),)),
    "open transactions stay open": Broken("unmount died", ((OutboundSteps, "_end_transactions", _nothing),)),
    "the rest is not uploaded": Broken("unmount died", ((TopicFlush, "upload_missing", _closed_segments_alone),)),
    "manifests change hands unasked": Broken(
        "late driver", ((ManifestHandover, "__call__", _unasked), (outbound, "check_current", _nothing))
    ),
    "a cancel is legal in cut_over": Broken("unmount cancelled", ((migration_tables, "UNMOUNT", _CANCELS_LATE),)),
    "a claim that comes after its cancel is made": Broken(
        "mount cancelled", ((inbound, "unclaim_topic", _does_not_fence),)
    ),
    "transactions are settled whatever became of the migration": Broken(
        "unmount cancelled", ((OutboundSteps, "_check_current", _nothing),)
    ),
    "a release seizes nothing": Broken(
        "release",
        (
            (archive, "seize_topic", _nothing),
            (ownership, "check_seized", _nothing),
            (archive, "check_seized", _nothing),
        ),
    ),
    "groups stay behind": Broken("unmount died", ((OutboundSteps, "_read_groups", lambda _self, _topic: {}),)),
    "a reader takes what is gone for the end": Broken("reader", ((topic_log.EmbeddedLog, "_check_open", _nothing),)),
}
