"""What must hold of mirrors over three clusters, and a list in memory of all that was acknowledged."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, RetryableError
from reconciler.operations.steps.transitions import UNDER_WAY
from tests.embedded.linking.linked import ORDERS, Linked
from tests.embedded.linking.linkedpoints import committed, mirrors_of, process
from tests.embedded.mortal import Fault
from tests.embedded.mounting.migrating import refusal
from tests.embedded.watched import DiedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.resources.mirrors import MirrorSeen

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

    def seen(self, name: str) -> MirrorSeen | None:
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
        """Return a value that was never written."""
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

    def _stopped(self, name: str, kept: Kept, seen: MirrorSeen, rows: dict[Row, int]) -> None:
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
        ends = self.linked.cluster(name).linking.ends(ORDERS)
        begins = self._begins(name, seen.source_cluster)
        there = {row: offset for row, offset in theirs.items() if begins.get(row[0], 0) <= offset < ends.get(row[0], 0)}
        here = {row: offset for row, offset in ours.items() if begins.get(row[0], 0) <= offset}
        assert here == there, (name, seen, here, there)

    def _begins(self, *names: str) -> dict[int, int]:
        """Return from where on all of them have what there is."""
        found: dict[int, int] = {}
        for name in names:
            for number, bounds in self.linked.cluster(name).log(ORDERS).bounds().items():
                found[number] = max(found.get(number, 0), bounds.start)
        return found

    def _check_groups(self, name: str) -> None:
        """See that a group points beyond no end of what takes records and was a mirror."""
        if self.kept[name].status != "STOPPED":
            return
        ends = self.linked.cluster(name).linking.ends(ORDERS)
        heads = self.linked.cluster(name).linking.heads(ORDERS)
        for (group, number), offset in committed(self.linked, name).items():
            is_open = number in heads and heads[number].writer == "producers"
            assert offset <= ends[number] or not is_open, (name, group, number, offset, ends)

    def finish(self) -> None:
        """Everybody answers: what is under way ends, what was broken off is failed over, mirrors catch up."""
        for _ in range(3):
            for seen in list(mirrors_of(self.linked)):
                refusal(lambda seen=seen: self.linked.driver().drive(seen.cluster, seen.name))  # type: ignore[misc]
        self.look()
        for seen in list(mirrors_of(self.linked)):
            if seen.status in UNDER_WAY or (seen.status == "PAUSED" and seen.operation is not None):
                self.linked.provider(seen.cluster).links.ask(seen.name, "failover")
        self.look()
        for seen in list(mirrors_of(self.linked)):
            if seen.status in {"ACTIVE", "SOURCE_UNAVAILABLE"}:
                refusal(lambda seen=seen: self.linked.copy(seen))  # type: ignore[misc]
        self.look()
