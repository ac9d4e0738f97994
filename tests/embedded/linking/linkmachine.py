"""A state machine that mirrors a topic among three clusters, with a death at any write and a network that is cut."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from reconciler.embedded.catalog.mirror_tables import MirrorShape, alter_link
from reconciler.embedded.segments.head import Partition, swap_head
from reconciler.errors import RetryableError
from reconciler.lifecycles.mirror import MIRROR, MirrorStatus
from reconciler.operations.steps.mirror_copy import FETCHING
from reconciler.operations.steps.transitions import UNDER_WAY
from tests.embedded.linking.linked import ORDERS, Linked
from tests.embedded.linking.linkedpoints import takes_records
from tests.embedded.linking.linkmodel import CLUSTERS, GROUP, LINKS, LinkModel, Row, Trouble
from tests.embedded.mortal import DAY_MS, Fault
from tests.embedded.mounting.migrating import refusal

if TYPE_CHECKING:
    from reconciler.embedded.clients.transactional_producer import TransactionalProducer
    from reconciler.embedded.segments.head import Head

JOBS = ("roll", "retain", "compact")
PARTITIONS = 3

names = st.sampled_from(CLUSTERS)
partitions = st.integers(0, PARTITIONS - 1)
hows = st.sampled_from(["dies before", "dies after", "no answer"])
troubles = st.one_of(
    st.none(),
    st.none(),
    st.builds(Fault, st.integers(0, 4), hows),
    st.builds(Fault, st.integers(0, 20), hows),
    names,
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
        """Leave a transaction open."""
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
        """Say where a group goes on; of a mirror that may lie beyond its end, as synced offsets do."""
        status = self.status(name)
        if status == "ABSENT" or partition >= self.linked.cluster(name).topic(ORDERS).partitions:
            return
        end = self.linked.cluster(name).linking.ends(ORDERS)[partition]
        offset = end + beyond if status not in {"REGULAR", "STOPPED"} else max(0, end - beyond)
        self.linked.cluster(name).groups.commit(GROUP, {(ORDERS, partition): offset})

    @rule(name=names, partition=partitions, keep=st.integers(0, 2))
    def delete_records(self, name: str, partition: int, keep: int) -> None:
        """Let go of the oldest records of a topic that is no mirror."""
        if self.status(name) not in {"REGULAR", "STOPPED"}:
            return
        cluster = self.linked.cluster(name)
        head = cluster.linking.heads(ORDERS).get(partition)
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
        """Add a partition, at most three."""
        topic = self.linked.cluster(name).topics().get(ORDERS)
        if topic is not None and topic.partitions < PARTITIONS:
            self.does(lambda it: it.cluster(name).alter_topic(ORDERS, {}, partitions=topic.partitions + 1), None)

    @rule(name=names)
    def reconfigure(self, name: str) -> None:
        """Change a config that mirrors follow."""
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
        """Do one of what is possible now."""
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
        """Ask for what may not be legal."""
        self.do(name, verb, fault)

    def _possible(self, name: str) -> list[str]:
        seen = self.seen(name)
        status = MirrorStatus.REGULAR if seen is None else seen.status
        found = [verb for verb in MIRROR.legal(status) if verb in VERBS]
        if status in FETCHING:
            found += ["copy", "copy"]
        if status in UNDER_WAY or (status == "STOPPED" and seen is not None and seen.stopped_by != "failover"):
            found += ["drive", "drive"]
        return found

    def do(self, name: str, verb: str, fault: Trouble) -> None:
        """Do a verb, a round of copying, or a step of what is under way."""
        match verb:
            case "copy":
                seen = self.seen(name)
                assert seen is not None
                self.does(lambda it: it.copy(seen, seen.operation.ends if seen.operation else None), fault)
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
                self.does(lambda it: it.provider(name).links.ask(ORDERS, verb), fault)
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
        """Remember whose source was cut, maybe."""
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
