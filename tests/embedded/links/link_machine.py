"""What must hold of mirrors over three clusters, and a list in memory of all that was acknowledged."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from reconciler.embedded import link_side
from reconciler.embedded.catalog.mirror_tables import MirrorShape, alter_link
from reconciler.embedded.catalog.tables import get_topic
from reconciler.embedded.check.check import check_cluster
from reconciler.embedded.check.damage import Severity
from reconciler.embedded.clients import topic_log
from reconciler.embedded.link_side import ClusterLinks
from reconciler.embedded.segments import gate
from reconciler.embedded.segments.gate import AppendGate, find_writer
from reconciler.embedded.segments.groups import list_groups, read_group
from reconciler.embedded.segments.head import Head, Partition, swap_head
from reconciler.errors import ReconcilerError, RetryableError
from reconciler.lifecycles import MIRROR, MirrorStatus
from reconciler.operations.steps import transitions
from reconciler.operations.steps.mirror_copy import FETCHING
from reconciler.operations.steps.transitions import UNDER_WAY
from reconciler.operations.steps.transitions import TransitionDriver as Driver
from reconciler.records.log import Digest, OffsetRange
from reconciler.resources import measures, mirrors
from reconciler.resources.mirrors import MirrorEntry, ObservedMirror, Operation
from tests.embedded.deaths import DAY_MS, Fault, MortalStore
from tests.embedded.links.linked import ORDERS, Linked
from tests.embedded.maintenance.tiny_segments import Clock, copied
from tests.embedded.mounts.migrants import HOWS, Inline, Silent, refusal, without_threads
from tests.embedded.mounts.migration_machine import Broken
from tests.embedded.stores import DiedError

if TYPE_CHECKING:
    import pytest

    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.objectstore.base import ListedObject, ObjectStore, StoredObject, Version


# Linked clusters as a value: copied, then driven by a process that dies, loses answers or meets a rival.

Do = Callable[[Linked], object]

READ_ONLY = "Cannot append records to read-only mirror topic"
EVERYTHING = OffsetRange(0, 1 << 40)


def one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the n-th write be the same one every time."""
    without_threads(monkeypatch)
    monkeypatch.setattr(topic_log, "ThreadPoolExecutor", Inline)


def again(linked: Linked) -> Linked:
    """Return the same clusters over copies of their stores."""
    return Linked(Clock(linked.clock.now_ms), dict(_copies(linked)), linked.new_id)


def _copies(linked: Linked) -> Iterator[tuple[str, ObjectStore]]:
    for name, store in linked.stores.items():
        yield name, copied(store)


class AwayStore(MortalStore):
    """A store that does not answer."""

    def get(self, key: str) -> StoredObject | None:
        raise RetryableError(f"{key}: no answer", hint="Try again.")

    def list(self, prefix: str) -> Iterator[ListedObject]:
        raise RetryableError(f"{prefix}: no answer", hint="Try again.")

    def get_range(self, key: str, _start: int, _length: int) -> bytes:
        raise RetryableError(f"{key}: no answer", hint="Try again.")

    def put(self, key: str, _body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        raise RetryableError(f"{key}: no answer, {kms_key_id}", hint="Try again.")

    def swap(self, key: str, _body: bytes, *, expected: Version | None) -> Version:
        raise RetryableError(f"{key}: no answer, {expected}", hint="Try again.")


def process(
    linked: Linked,
    *,
    fault: Fault | None = None,
    before: Callable[[str, str], None] = lambda _what, _key: None,
    away: Collection[str] = (),
) -> Linked:
    """Return the clusters as one process reaches them, whose writes are counted and may be its last.

    Those that are `away` do not answer.
    """
    fuse = Silent()
    stores: dict[str, ObjectStore] = {}

    def write(what: str, key: str) -> None:
        before(what, key)
        fuse.before(what, key)

    for name, inner in linked.stores.items():
        store = AwayStore(inner) if name in away else MortalStore(inner)
        store.fuse, store.before, store.after = fuse, write, fuse.after
        stores[name] = store
    fuse.arm(fault)
    return Linked(linked.clock, stores, linked.new_id)


def deaths(linked: Linked, do: Do, *, hows: tuple[str, ...] = HOWS) -> Iterator[Linked]:
    """Yield what is left behind for every write, on whichever cluster, at which a process can die or hear nothing."""
    for how in hows:
        for at in itertools.count():
            left, reached = again(linked), False

            def seen(_what: str, _key: str, at: int = at) -> None:
                nonlocal writes, reached
                writes, reached = writes + 1, reached or writes == at

            writes = 0
            try:
                do(process(left, fault=Fault(at, how), before=seen))  # type: ignore[arg-type]  # one of HOWS
            except (DiedError, RetryableError):
                assert reached
            if not reached:
                assert at > 0
                break
            yield left


def rivals(
    linked: Linked, do: Do, rival: Do, *, prepare: Do = lambda _left: None
) -> Iterator[tuple[Linked, ReconcilerError | None]]:
    """Yield what is left for every write that a rival comes right before, and what the process was refused with."""
    for at in itertools.count():
        left, writes, met = again(linked), itertools.count(), False
        prepare(left)

        def meet(_what: str, _key: str, at: int = at, left: Linked = left, writes: Iterator[int] = writes) -> None:
            nonlocal met
            if not met and next(writes) == at:
                met = True
                rival(left)

        said = refusal(lambda left=left, meet=meet: do(process(left, before=meet)))  # type: ignore[misc]
        if not met:
            assert at > 0
            break
        yield left, said


def mirrors_of(linked: Linked) -> Iterator[ObservedMirror]:
    """Yield all mirrors of all clusters, stopped ones too."""
    for name in linked.stores:
        yield from linked.provider(name).links.list_mirrors()


def finish(linked: Linked) -> None:
    """Let another process drive what is in progress to its end, and copy what mirrors."""
    driver = linked.driver()
    for seen in list(mirrors_of(linked)):
        driver.drive(seen.cluster, seen.name)
    assert not [seen for seen in mirrors_of(linked) if seen.status in UNDER_WAY]
    for seen in mirrors_of(linked):
        if seen.status == "ACTIVE":
            linked.copy(seen)


def takes_records(linked: Linked, name: str, full_name: str = ORDERS, partition: int = 0) -> bool:
    """Tell whether somebody new could append to a topic; nothing is appended here."""
    elsewhere = again(linked)
    said = refusal(lambda: elsewhere.produce(name, "probe", full_name=full_name, partition=partition))
    assert said is None or READ_ONLY in str(said), said
    return said is None


def digests(linked: Linked, name: str, full_name: str = ORDERS) -> dict[int, tuple[int, Digest]]:
    """Return the end and the digest of each partition."""
    log = linked.cluster(name).log(full_name)
    return {
        number: (bounds.end, sum(log.read_digests(number, EVERYTHING), Digest()))
        for number, bounds in log.read_bounds().items()
    }


def values(linked: Linked, name: str, full_name: str = ORDERS) -> list[str]:
    """Return the values that are readable, of all partitions, sorted."""
    return sorted((one.value or b"").decode() for one in linked.cluster(name).consume(full_name))


def check_whole(linked: Linked) -> None:
    """See that heads have the writer that the catalog says, groups stay within ends, and a check finds nothing."""
    for name in linked.stores:
        cluster = linked.cluster(name)
        catalog = cluster.catalog.read()
        for full_name in catalog.topics:
            topic = get_topic(catalog, full_name)
            for number, head in cluster.linking.read_written_heads(full_name).items():
                assert head.writer == find_writer(topic), (name, full_name, number, head.writer, topic.mirror)
            ends = cluster.linking.read_ends(full_name)
            for (group, number), offset in committed(linked, name, full_name).items():
                assert offset <= ends[number], (name, group, number)
        found = check_cluster(linked.stores[name])
        assert not [each for each in found.findings if each.severity is Severity.ERROR], name


def committed(linked: Linked, name: str, full_name: str = ORDERS) -> dict[tuple[str, int], int]:
    """Return what groups hold of a topic, as it is kept, by group and partition."""
    cluster = linked.cluster(name)
    topic_id = cluster.topic(full_name).id
    found: dict[tuple[str, int], int] = {}
    for group in list_groups(cluster.store):
        held = read_group(cluster.store, group)
        for (of, number), each in ({} if held is None else held.offsets).items():
            if of == topic_id:
                found[group, number] = each.offset
    return found


def equal(linked: Linked, *names: str, full_name: str = ORDERS) -> bool:
    """Tell whether clusters have the same topic, byte for byte."""
    first, *others = [digests(linked, name, full_name) for name in names]
    return all(other == first for other in others)


CLUSTERS: Final = ("west", "east", "south")
LINKS: Final = {"we": ("west", "east"), "es": ("east", "south"), "ws": ("west", "south")}
GROUP: Final = "readers"

Trouble = Fault | str | None
"""What goes wrong: at a write, or a cluster that does not answer."""
Row = tuple[int, str]
"""Partition and value; values never come twice."""


@dataclass
class Kept:
    """A topic of a cluster: what its readers must find of what was written there or came with a role."""

    topic_id: str
    must: set[Row] = field(default_factory=set)
    maybe: set[Row] = field(default_factory=set)
    status: str = "REGULAR"
    stopped_by: str | None = None
    promised: set[Row] = field(default_factory=set)
    """What a promotion that was asked for has to bring."""
    is_tainted: bool = False
    """What it was copied from was cut since: it follows no more, whatever its state says."""


class LinkModel:
    """Three clusters, all linked with each other both ways, and one topic that begins in `west`."""

    def __init__(self) -> None:
        self.linked = Linked()
        self.serial = 0
        self.kept: dict[str, Kept] = {}
        for name in CLUSTERS:
            self.linked.cluster(name)
        for link, (one, other) in LINKS.items():
            self.linked.link(one, other, link)
        self.linked.west.create_topic(ORDERS, partitions=2)
        self.look()

    # -- who is what

    def seen(self, name: str) -> ObservedMirror | None:
        """Return the topic of a cluster as the mirror it is or was."""
        return next((seen for seen in mirrors_of(self.linked) if seen.cluster == name), None)

    def status(self, name: str) -> str:
        """Return what the topic of a cluster is."""
        if ORDERS not in self.linked.cluster(name).topics():
            return "ABSENT"
        seen = self.seen(name)
        return "REGULAR" if seen is None else seen.status.value

    def rows(self, name: str, *, decided: bool = True) -> dict[Row, int]:
        """Return the records that are readable, with their offsets; also undecided ones."""
        isolation = "read_committed" if decided else "read_uncommitted"
        found = self.linked.cluster(name).consume(ORDERS, isolation=isolation)  # type: ignore[arg-type]  # one of them
        return {(one.partition, (one.value or b"").decode()): one.offset for one in found}

    def value(self) -> str:
        self.serial += 1
        return f"v{self.serial}"

    # -- doing

    def does(self, do: Callable[[Linked], object], fault: Trouble) -> ReconcilerError | None:
        """Do something in a process of its own; return what it was refused with."""
        away = [fault] if isinstance(fault, str) else []
        try:
            return refusal(lambda: do(process(self.linked, fault=None if away else fault, away=away)))  # type: ignore[arg-type]  # no name
        except DiedError:
            return RetryableError("the process is gone", hint="Let another one do it.")

    # -- what must hold

    def look(self) -> None:
        """See what has become of every topic, and that it has what it must."""
        for name in CLUSTERS:
            self._look_at(name)
        for name in CLUSTERS:
            if name in self.kept:
                self._check_prefix(name)
                self._check_groups(name)

    def _look_at(self, name: str) -> None:
        topic = self.linked.cluster(name).topics().get(ORDERS)
        if topic is None:
            self.kept.pop(name, None)
            return
        kept = self.kept.get(name)
        if kept is None or kept.topic_id != topic.id:
            kept = self.kept[name] = Kept(topic.id)
        seen = self.seen(name)
        before, kept.status = kept.status, self.status(name)
        kept.stopped_by = None if seen is None else seen.stopped_by
        rows = self.rows(name, decided=False)
        if before != "STOPPED" and kept.status == "STOPPED" and seen is not None:
            self._stopped(name, kept, seen, rows)
        elif kept.status in {"REGULAR", "STOPPED", "PENDING_MIRROR", "PENDING_SETUP_FOR_RESTORE"}:
            assert self._unexpired(kept.must) <= set(rows), (name, kept, rows)
        else:
            kept.must, kept.maybe = set(), set()
        if kept.status == "STOPPED":
            kept.is_tainted = False

    def _stopped(self, name: str, kept: Kept, seen: ObservedMirror, rows: dict[Row, int]) -> None:
        """It takes records from now on: it has all that was promised by the verb that stopped it."""
        if kept.stopped_by == "promote":
            assert self._unexpired(kept.promised) <= set(rows), (name, kept, rows)
        elif kept.stopped_by != "failover":
            source = self.kept[seen.source_cluster]
            assert self._unexpired(source.must) <= set(rows), (name, source, rows)
        if kept.stopped_by == "failover":
            assert self._unexpired(kept.must) <= set(rows), (name, kept, rows)
        kept.must, kept.maybe, kept.promised = set(self.rows(name)), set(), set()

    def _unexpired(self, rows: set[Row]) -> set[Row]:
        """Return rows without those that were deleted from below since."""
        return {row for row in rows if row not in self.expired}

    expired: frozenset[Row] = frozenset()

    def _check_prefix(self, name: str) -> None:
        """See that a mirror has what its source has, at the same offsets, as far as it has come."""
        seen, kept = self.seen(name), self.kept[name]
        if seen is None or kept.is_tainted or seen.status in {"STOPPED", "FAILED", *UNDER_WAY}:
            return
        source = self.kept.get(seen.source_cluster)
        if source is None or source.topic_id != seen.source_topic_id:
            return
        ours, theirs = self.rows(name), self.rows(seen.source_cluster, decided=False)
        ends = self.linked.cluster(name).linking.read_ends(ORDERS)
        begins = self._begins(name, seen.source_cluster)
        there = {row: offset for row, offset in theirs.items() if begins.get(row[0], 0) <= offset < ends.get(row[0], 0)}
        here = {row: offset for row, offset in ours.items() if begins.get(row[0], 0) <= offset}
        assert here == there, (name, seen, here, there)

    def _begins(self, *names: str) -> dict[int, int]:
        """Return from where on all of them have what there is."""
        found: dict[int, int] = {}
        for name in names:
            for number, bounds in self.linked.cluster(name).log(ORDERS).read_bounds().items():
                found[number] = max(found.get(number, 0), bounds.start)
        return found

    def _check_groups(self, name: str) -> None:
        """See that a group points beyond no end of what takes records and was a mirror."""
        if self.kept[name].status != "STOPPED":
            return
        ends = self.linked.cluster(name).linking.read_ends(ORDERS)
        heads = self.linked.cluster(name).linking.read_written_heads(ORDERS)
        for (group, number), offset in committed(self.linked, name).items():
            is_open = number in heads and heads[number].writer == "producers"
            assert offset <= ends[number] or not is_open, (name, group, number, offset, ends)

    def finish(self) -> None:
        """Everybody answers: what is in progress ends, what was interrupted is failed over, mirrors catch up."""
        for _ in range(3):
            for seen in list(mirrors_of(self.linked)):
                refusal(lambda seen=seen: self.linked.driver().drive(seen.cluster, seen.name))  # type: ignore[misc]
        self.look()
        for seen in list(mirrors_of(self.linked)):
            if seen.status in UNDER_WAY or (seen.status == "PAUSED" and seen.operation is not None):
                self.linked.provider(seen.cluster).links.request_verb(seen.name, "failover")
        self.look()
        for seen in list(mirrors_of(self.linked)):
            if seen.status in {"ACTIVE", "SOURCE_UNAVAILABLE"}:
                refusal(lambda seen=seen: self.linked.copy(seen))  # type: ignore[misc]
        self.look()


# A state machine that mirrors a topic among three clusters, with a death at any write and a network that is cut.


JOBS = ("roll", "retain", "compact")
PARTITIONS = 3

names = st.sampled_from(CLUSTERS)
partitions = st.integers(0, PARTITIONS - 1)
hows = st.sampled_from(["dies before", "dies after", "no answer"])
troubles = st.one_of(
    st.none(), st.none(), st.builds(Fault, st.integers(0, 4), hows), st.builds(Fault, st.integers(0, 20), hows), names
)
"""A death, an answer that is lost, or a cluster that does not answer."""
VERBS = ("pause", "resume", "failover", "promote", "reverse-and-start", "reverse-and-pause", "truncate-and-restore")


@dataclass
class Open:
    """A transaction that is not decided."""

    producer: TransactionalProducer
    name: str
    topic_id: str
    row: Row


class LinkMachine(LinkModel, RuleBasedStateMachine):
    """One topic, and whoever mirrors it."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self.open: list[Open] = []
        LinkModel.__init__(self)
        self.mirror("east", "we", None)
        for partition in (0, 0, 1):
            self.produce("west", partition, None)
        self.do("east", "copy", None)

    # -- clients

    @rule(name=names, partition=partitions, fault=troubles)
    def produce(self, name: str, partition: int, fault: Trouble) -> None:
        """Append a record: taken where no mirror is, refused where one is."""
        status = self.status(name)
        if status == "ABSENT" or partition >= self.linked.cluster(name).topic(ORDERS).partitions:
            return
        row = (partition, self.value())
        said = self.does(lambda it: it.produce(name, row[1], partition=partition), fault)
        if status in {"REGULAR", "STOPPED"}:
            assert said is None or isinstance(said, RetryableError), said
            (self.kept[name].must if said is None else self.kept[name].maybe).add(row)
        else:
            assert said is not None
            assert isinstance(said, RetryableError) or "read-only mirror topic" in str(said), said
            assert row not in self.rows(name, decided=False)
        self.look()

    @precondition(lambda self: len(self.open) < 2)
    @rule(name=names, partition=partitions)
    def begin(self, name: str, partition: int) -> None:
        if self.status(name) not in {"REGULAR", "STOPPED"}:
            return
        topic = self.linked.cluster(name).topic(ORDERS)
        row = (partition % topic.partitions, self.value())
        producer = self.linked.cluster(name).producer(f"tx{self.serial}", transaction_timeout_ms=900_000)
        producer.init_transactions()
        producer.begin()
        producer.send(ORDERS, row[1], partition=row[0])
        producer.flush()
        self.open.append(Open(producer, name, topic.id, row))

    @precondition(lambda self: self.open)
    @rule(which=st.integers(0, 3), commits=st.booleans())
    def end(self, which: int, commits: bool) -> None:  # noqa: FBT001 - hypothesis names its arguments
        """Commit or abort one; what a reversal or restore has aborted is refused."""
        was = self.open.pop(which % len(self.open))
        kept = self.kept.get(was.name)
        is_same = kept is not None and kept.topic_id == was.topic_id
        is_there = is_same and was.row in self.rows(was.name, decided=False)
        said = refusal(was.producer.commit if commits else was.producer.abort)
        if commits and said is None and is_there and kept is not None and kept.status in {"REGULAR", "STOPPED"}:
            kept.must.add(was.row)
        self.look()

    @rule(name=names, partition=partitions, beyond=st.integers(0, 3))
    def commit_offsets(self, name: str, partition: int, beyond: int) -> None:
        """Say where a group goes on; of a mirror that may lie beyond its end, as synced offsets do.

        Not of one that is to become a mirror, and still is the producers': nothing is synced to it yet.
        """
        status = self.status(name)
        if status == "ABSENT" or partition >= self.linked.cluster(name).topic(ORDERS).partitions:
            return
        end = self.linked.cluster(name).linking.read_ends(ORDERS)[partition]
        head = self.linked.cluster(name).linking.read_written_heads(ORDERS).get(partition)
        is_mirror = status not in {"REGULAR", "STOPPED"} and (head is None or head.writer != "producers")
        offset = end + beyond if is_mirror else max(0, end - beyond)
        self.linked.cluster(name).groups.commit(GROUP, {(ORDERS, partition): offset})

    @rule(name=names, partition=partitions, keep=st.integers(0, 2))
    def delete_records(self, name: str, partition: int, keep: int) -> None:
        """Let go of the oldest records of a topic that is no mirror."""
        if self.status(name) not in {"REGULAR", "STOPPED"}:
            return
        cluster = self.linked.cluster(name)
        head = cluster.linking.read_written_heads(ORDERS).get(partition)
        if head is None:
            return
        start = max(head.start, head.bounds.stable - keep)
        self.expired |= {
            row for row, at in self.rows(name, decided=False).items() if row[0] == partition and at < start
        }
        for each in self.kept.values():
            each.promised -= self.expired

        def raised(head: Head) -> Head:
            return replace(head, start=start, local_start=max(start, head.local_start))

        swap_head(cluster.store, Partition(ORDERS, cluster.topic(ORDERS).id, partition), raised)
        self.look()

    # -- topics

    @rule(name=names)
    def grow(self, name: str) -> None:
        topic = self.linked.cluster(name).topics().get(ORDERS)
        if topic is not None and topic.partitions < PARTITIONS:
            self.does(lambda it: it.cluster(name).alter_topic(ORDERS, {}, partitions=topic.partitions + 1), None)

    @rule(name=names)
    def reconfigure(self, name: str) -> None:
        self.does(
            lambda it: it.cluster(name).alter_topic(ORDERS, {"max.message.bytes": str(10**6 + self.serial)}), None
        )

    @precondition(lambda self: len(self.kept) > 1)
    @rule(name=names, chance=st.integers(0, 3), fault=troubles)
    def delete(self, name: str, chance: int, fault: Trouble) -> None:
        """Delete a topic that somebody else has too."""
        if chance:
            return
        self.does(lambda it: it.cluster(name).delete_topic(ORDERS), fault)
        self.linked.cluster(name).finish_deletions()
        if self.status(name) == "ABSENT":
            self.open = [each for each in self.open if each.name != name]
        self.look()

    @rule(name=names, link=st.sampled_from(sorted(LINKS)), fault=troubles)
    def mirror(self, name: str, link: str, fault: Trouble) -> None:
        """Make a mirror where there is no topic of that name; nothing is copied yet."""
        other = _other(link, name)
        if other is None or self.status(name) != "ABSENT" or self.status(other) == "ABSENT":
            return

        def make(it: Linked) -> None:
            of = it.cluster(other).source_topic(ORDERS)
            it.cluster(name).create_mirror(ORDERS, MirrorShape(link=link, source=ORDERS), of)

        self.does(make, fault)
        self.look()

    # -- mirrors

    @rule(which=st.integers(0, 99), fault=troubles)
    def go_on(self, which: int, fault: Trouble) -> None:
        possible = [(name, verb) for name in sorted(self.kept) for verb in self._possible(name)]
        if possible:
            self.do(*possible[which % len(possible)], fault)

    @rule(steps=st.lists(st.tuples(st.integers(0, 99), troubles, partitions), min_size=1, max_size=4))
    def go_on_for_long(self, steps: list[tuple[int, Trouble, int]]) -> None:
        """Do several things that are possible, while producers are at work."""
        for which, fault, partition in steps:
            self.produce(CLUSTERS[which % 3], partition, None)
            self.go_on(which, fault)

    @rule(name=names, seed=st.integers(0, 99), faults=st.tuples(troubles, troubles))
    def fail_back(self, name: str, seed: int, faults: tuple[Trouble, Trouble]) -> None:
        """Fail over, write on, restore the original source, and reverse that."""
        seen = self.seen(name)
        if seen is None or seen.source_cluster not in self.kept:
            return
        self.do(name, "failover", None)
        for at in (name, seen.source_cluster):
            self.produce(at, seed % 2, None)
        self.do(seen.source_cluster, "truncate-and-restore", faults[0])
        self.do(seen.source_cluster, "drive", None)
        self.produce(name, seed % 2, None)
        self.do(seen.source_cluster, "reverse-and-start", faults[1])

    @rule(name=names, verb=st.sampled_from(VERBS), fault=troubles)
    def ask_anything(self, name: str, verb: str, fault: Trouble) -> None:
        self.do(name, verb, fault)

    def _possible(self, name: str) -> list[str]:
        seen = self.seen(name)
        status = MirrorStatus.REGULAR if seen is None else seen.status
        found = [verb for verb in MIRROR.list_legal_verbs(status) if verb in VERBS]
        if status in FETCHING:
            found += ["copy", "copy"]
        if status in UNDER_WAY or (status == "STOPPED" and seen is not None and seen.stopped_by != "failover"):
            found += ["drive", "drive"]
        return found

    def do(self, name: str, verb: str, fault: Trouble) -> None:
        """Do a verb, a round of copying, or a step of what is in progress."""
        match verb:
            case "copy":
                seen = self.seen(name)
                assert seen is not None
                self.does(lambda it: it.copy(seen, (seen.operation.ends or {}) if seen.operation else None), fault)
            case "promote":
                self._promise(name)
                self.does(lambda it: it.driver().promote(name, ORDERS), fault)
            case "reverse-and-start" | "reverse-and-pause":
                paused = verb == "reverse-and-pause"
                self.does(lambda it: it.driver().reverse(name, ORDERS, is_paused=paused), fault)
            case "truncate-and-restore":
                self._restore(name, fault)
            case "drive":
                self.does(lambda it: it.driver().drive(name, ORDERS), fault)
                self._taint(name)
            case _:
                self.does(lambda it: it.provider(name).links.request_verb(ORDERS, verb), fault)
        self.look()

    def _promise(self, name: str) -> None:
        seen = self.seen(name)
        if seen is None or seen.source_cluster not in self.kept:
            return
        if seen.operation is None and seen.status != "STOPPED":
            source = self.kept[seen.source_cluster]
            is_it = source.topic_id == seen.source_topic_id
            self.kept[name].promised = set(source.must) if is_it else set()

    def _restore(self, name: str, fault: Trouble) -> None:
        before = self.rows(name) if name in self.kept else {}
        cut: list[int] = []

        def restored(it: Linked) -> None:
            found = it.driver().restore(name, ORDERS)[1]
            cut.append(sum(each.records for each in found.values()))

        said = self.does(restored, fault)
        if said is None or self.status(name) in UNDER_WAY:
            self._taint(name)
        if said is None and fault is None and not self.open:
            assert len(before) - len(self.rows(name)) == cut[0], (before, cut)

    @rule(name=names, link=st.sampled_from(sorted(LINKS)), paused=st.booleans())
    def pause_link(self, name: str, link: str, paused: bool) -> None:  # noqa: FBT001 - as above
        """Pause a link, or let it go on."""
        if _other(link, name) is not None:
            catalog = self.linked.cluster(name).catalog
            declared = catalog.read().links[link].declared
            catalog.commit(lambda draft: alter_link(draft, link, {**declared, "paused": paused}))

    def _taint(self, name: str) -> None:
        for other in CLUSTERS:
            seen = self.seen(other)
            if seen is not None and seen.source_cluster == name and other in self.kept:
                self.kept[other].is_tainted = True

    # -- the world

    @rule(name=names, job=st.sampled_from(JOBS), fault=troubles)
    def upkeep(self, name: str, job: str, fault: Trouble) -> None:
        """Do one job of a pass, a while later."""
        self.linked.clock.now_ms += 0 if self.open else 60_000
        self.does(lambda it: getattr(it.cluster(name).upkeep(), job)(), fault)
        self.does(lambda it: it.cluster(name).finish_transactions(), None)
        self.look()

    @rule(name=names)
    def sweep(self, name: str) -> None:
        """Sweep as it will be in two days."""

        def swept(it: Linked) -> None:
            store = it.stores[name]
            store.ahead_ms = 2 * DAY_MS  # type: ignore[attr-defined]  # a mortal one
            it.cluster(name).sweep()

        self.does(swept, None)
        self.look()

    def teardown(self) -> None:
        """Everything comes to an end, and mirrors have what their sources have."""
        self.finish()
        for name, kept in self.kept.items():
            if kept.status in {"REGULAR", "STOPPED"}:
                assert takes_records(self.linked, name)


def _other(link: str, name: str) -> str | None:
    """Return who is at the other end of a link; `None`: it does not lead there."""
    ends = LINKS[link]
    return None if name not in ends else ends[1 - ends.index(name)]


# Deliberately broken variants of mirroring: each leaves out one rule of what is written, asked or read first.


_hand, _ask, _advance, _join, _stand = (
    ClusterLinks._hand_over_heads,
    ClusterLinks.start_operation,
    ClusterLinks.advance_operation,
    ClusterLinks.mirror_own_mirror,
    ClusterLinks.record_source_match,
)


def _nothing(*_asked: Any, **_named: Any) -> None:
    """Leave it out."""


def _opens_early(self: ClusterLinks, full_name: str, to: Any, *, operation: str, is_given_up: bool) -> MirrorEntry:
    """Hand heads to producers while the catalog calls it a mirror."""
    if to == "STOPPED":
        topic = self.cluster.topic(full_name)
        self._hand_over_heads(replace(topic, mirror=None))
    return _advance(self, full_name, to, operation=operation, is_given_up=is_given_up)


def _seals_what_is_there(self: ClusterLinks, topic: Any) -> Any:
    real = link_side.replace_writer

    def only_there(*asked: Any, **named: Any) -> Any:
        return real(*asked, **{**named, "makes": False})

    link_side.replace_writer = only_there
    try:
        return _hand(self, topic)
    finally:
        link_side.replace_writer = real


def _keeps_transactions(self: ClusterLinks, full_name: str) -> None:
    _hand(self, self.cluster.topic(full_name))


def _stands_first(self: Driver, links: Any, here: ObservedMirror, operation: Operation, cut: Any) -> ObservedMirror:
    """Note that it equals its source before what diverged is cut, and cut nothing."""
    links.record_agreement(here.name, here.source_topic_id or "", self._read_bounds(here), operation=operation.id)
    assert cut is not None
    return self._set_status(links, here, transitions.MirrorStatus.ACTIVE)


def _opens_whatever(self: Driver, links: Any, here: ObservedMirror, ends: Mapping[int, int]) -> None:
    """Copy to where the source is, and do not look whether all of it came."""
    self.copy(here, ends)
    assert links is not None


def _joins_late(self: Driver, links: Any, here: ObservedMirror, operation: Operation) -> ObservedMirror:
    ends = {part: bound.end for part, bound in self._read_bounds(here).items()}
    here = links.record_end_offsets(here.name, operation=operation.id, ends=ends)
    self._copy_all(links, here, ends)
    there = self._get_links(here.source_cluster)
    there.convert_to_mirror(here.source, here, Operation(operation.id, operation.verb), may_go_on=self.may_go_on)
    return self._set_status(links, here, transitions.MirrorStatus.PENDING_STOPPED)


def _confirms_nothing(self: AppendGate, _partition: int) -> Any:
    catalog = self.catalog.read()
    self._check_topic(catalog)
    return catalog


def _forgets(mirror: MirrorEntry) -> MirrorEntry:
    return replace(mirror, operation=None)


def _all_fetched(copy: Any, source: Any, _source_topic_id: Any) -> int:
    return int(min(copy.end, source.end))


VARIANTS: Final[Mapping[str, Broken]] = {
    "heads are handed before the catalog says so": Broken(
        "promote fails over", ((ClusterLinks, "advance_operation", _opens_early),)
    ),
    "no head is made where there is none": Broken(
        "overtaken first append", ((ClusterLinks, "_hand_over_heads", _seals_what_is_there),)
    ),
    "no head is sealed": Broken("overtaken append", ((ClusterLinks, "_close_to_producers", _nothing),)),
    "open transactions stay open": Broken(
        "reverse died", ((ClusterLinks, "_close_to_producers", _keeps_transactions),)
    ),
    "it stands before it is cut": Broken("restore died", ((Driver, "_run_restore", _stands_first),)),
    "nothing is noted of what it equals": Broken("just swapped", ((ClusterLinks, "record_source_match", _nothing),)),
    "no group is clamped": Broken(
        "failover died", ((link_side, "clamp_groups", _nothing), (gate, "clamp_groups", _nothing))
    ),
    "groups are clamped by who fails over alone": Broken("failover died", ((AppendGate, "_clamp_groups", _nothing),)),
    "it opens without what it lacks": Broken("waits", ((Driver, "_copy_all", _opens_whatever),)),
    "the source is shut after the copy": Broken(
        "append", ((Driver, "_run_synchronization", _joins_late), (Driver, "_recheck_sides", _nothing))
    ),
    "what was failed over is begun again": Broken("late join", ((mirrors, "_end_operation", _forgets),)),
    "a mirror opens though its source was rescued": Broken(
        "west rescued", ((transitions, "check_source_closed", _nothing), (Driver, "_recheck_sides", _nothing))
    ),
    "what was looked at long ago is published": Broken("late copy", ((topic_log, "check_copy_current", _nothing),)),
    "whatever has offsets is the same": Broken("restore died", ((measures, "_find_copied_end", _all_fetched),)),
    "a first append is refused after it is there": Broken(
        "first append", ((AppendGate, "_confirm_topic", _confirms_nothing),)
    ),
}
