"""The links of a Kafka cluster, in the words of every platform.

Offsets of a mirror are those of its source here: its own are others, and the offset map says which.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NoReturn

from reconciler.errors import ReconcilerError, UserError
from reconciler.lifecycles.mirror import LinkStatus, MirrorStatus
from reconciler.providers.base import go_on
from reconciler.providers.kafka.ledger import LINK, MIRROR, PROGRESS, progress_key, writer_of
from reconciler.providers.kafka.linking.changing import Changing
from reconciler.providers.kafka.linking.states import mirror_changes, noted, states_of
from reconciler.providers.kafka.offsets import bounds_of
from reconciler.providers.linkmodels import link_in
from reconciler.resources.mirroring import LinkSeen, MirrorSeen, Operation, Position, Trouble
from reconciler.resources.mirrorstates import (
    REVERSALS,
    aimed,
    begun,
    link_status,
    link_troubled,
    task_troubled,
    troubled,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from reconciler.providers.kafka.ledger import Changes, Entries
    from reconciler.providers.kafka.linking.site import Site
    from reconciler.providers.kafka.linking.states import Kept, States
    from reconciler.providers.kafka.linking.syncs import KafkaSyncs
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.records.log import Bounds
    from reconciler.resources.linkentries import OperationEntry, TroubleEntry
    from reconciler.resources.mirroring import Truncated


@dataclass(frozen=True)
class KafkaLinks:
    """`LinksOfCluster` over the ledger of a Kafka cluster."""

    site: Site

    @property
    def syncs(self) -> KafkaSyncs:
        """What links keep in step beside records."""
        from reconciler.providers.kafka.linking.syncs import KafkaSyncs  # noqa: PLC0415 - only who drives links pays

        return KafkaSyncs(self.site)

    def links(self) -> Sequence[LinkSeen]:
        """Return the links, by name: the ledger alone is read."""
        return [
            LinkSeen(
                link_in(name, self.site.cluster, link),
                link.id,
                link_status(link),
                _told(link.trouble),
                {task: _trouble(trouble) for task, trouble in sorted(link.tasks.items())},
                link.source_cluster_id,
            )
            for name, link in sorted(self.site.states().links.items())
        ]

    def mirrors(self, link: str | None = None) -> Sequence[MirrorSeen]:
        """Return the mirrors whose topics are there, by full name: the ledger, and one request."""
        states = self.site.states()
        wanted = [topic for topic, kept in sorted(states.mirrors.items()) if link in {None, kept.link}]
        topics = self.site.seen(wanted)
        live = states.live({name: seen.id for name, seen in topics.items()})
        found = [_seen(self.site, live, kept, topics[topic]) for topic, kept in live.mirrors.items() if topic in wanted]
        return sorted(found, key=lambda each: each.name)

    def mirror(self, full_name: str) -> MirrorSeen:
        """Return one mirror.

        Raises:
            UserError: There is no such topic, or it is not mirrored.
        """
        topic, seen = self.site.topic(full_name)
        states = self.site.states()
        if seen is None:
            raise UserError(f"topic {full_name} does not exist", hint="See which there are: reconciler topic list")
        return _seen(self.site, states, states.mirror(topic, full_name, seen.id), seen)

    def positions(self, full_name: str) -> Mapping[int, Position]:
        """Return how far the partitions of a mirror have come, in offsets of its source; else where a topic stands."""
        topic, seen = self.site.topic(full_name)
        if seen is None:
            raise UserError(f"topic {full_name} does not exist", hint="See which there are: reconciler topic list")
        numbers = range(len(seen.replicas))
        entries = self.site.ledger.read(LINK, MIRROR, PROGRESS)
        kept = states_of(entries).live({topic: seen.id}).mirrors.get(topic)
        if kept is None or not kept.follows:
            bounds = bounds_of(self.site.client, [(topic, number) for number in numbers])
            return {number: Position(at.start, at.end, at.epochs) for (_, number), at in bounds.items()}
        return {number: _position(kept, entries.get(progress_key(topic, number)), number) for number in numbers}

    def ask(
        self, full_name: str, verb: str, *, operation: str = "", may_go_on: Callable[[], None] = go_on
    ) -> MirrorSeen:
        """Ask for a verb of the table; one that stops has shut out whoever copied when this returns."""
        if verb in REVERSALS:
            _cannot(full_name, "reversed")
        found = self._changing(may_go_on).ask({full_name: self.mirror(full_name).link}, verb, operation)[full_name]
        if isinstance(found, ReconcilerError):
            raise found
        return self.mirror(full_name)

    def join(
        self, full_name: str, of: MirrorSeen, *, operation: str, verb: str, may_go_on: Callable[[], None] = go_on
    ) -> MirrorSeen:
        """Refuse: nobody keeps producers from writing to a topic, so it cannot become a mirror of its own mirror."""
        del of, operation, may_go_on
        _cannot(full_name, "reversed" if verb in REVERSALS else "restored")

    def aim(self, full_name: str, *, operation: str, ends: Mapping[int, int]) -> MirrorSeen:
        """Write down where an operation is to end; the first ones count."""
        return self._changed(full_name, lambda kept: aimed(full_name, kept.entry, operation, ends))

    def advance(
        self, full_name: str, to: MirrorStatus, *, operation: str, may_go_on: Callable[[], None] = go_on
    ) -> MirrorSeen:
        """Let a mirror go to the next state of its operation."""
        self._changing(may_go_on).advance(full_name, self.mirror(full_name).link, to, operation)
        return self.mirror(full_name)

    def truncate(
        self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = go_on
    ) -> Mapping[int, Truncated]:
        """Refuse: no broker cuts the end of a log."""
        del operation, may_go_on
        _cannot(full_name, "restored")

    def stand(self, full_name: str, source_topic_id: str, bounds: Mapping[int, Bounds], *, operation: str) -> None:
        """Refuse: only reversals and restores need it."""
        del source_topic_id, bounds, operation
        _cannot(full_name, "reversed")

    def begin(self, full_name: str, offsets: Mapping[int, int]) -> MirrorSeen:
        """Note where a new mirror begins, in offsets of its source, for copiers too: both at once."""
        topic, seen = self.site.topic(full_name)

        def decide(entries: Entries) -> Changes:
            kept = states_of(entries).mirror(topic, full_name, None if seen is None else seen.id)
            after = replace(kept, entry=begun(kept.entry, offsets))
            missing = {
                number: at
                for number, at in (after.entry.begins or {}).items()
                if progress_key(topic, number) not in entries
            }
            at_start = {**_BEGUN, "copy_id": kept.topic_id}
            started = {progress_key(topic, number): {**at_start, "through": at} for number, at in missing.items()}
            return {**started, **({} if after == kept else mirror_changes(topic, after))}

        self.site.ledger.change(writer_of(self.mirror(full_name).link), decide, LINK, MIRROR, PROGRESS)
        return self.mirror(full_name)

    def follow_starts(self, full_name: str, starts: Mapping[int, int]) -> None:
        """Do nothing: mirrors have the retention of their sources, and brokers expire by the records' own times."""

    def trouble(
        self, full_name: str, trouble: Trouble | None, *, fails: bool = False, operation: str | None = None
    ) -> None:
        """Note why a mirror cannot fetch or go on, or that it can again."""
        kept = noted(trouble, self.site.now_ms())
        self._changed(full_name, lambda here: troubled(here.entry, kept, fails=fails, operation=operation))

    def link_trouble(self, link: str, status: LinkStatus, trouble: Trouble | None) -> None:
        """Note whether a link reaches its source."""
        kept = noted(trouble, self.site.now_ms())
        Changing(self.site).change_link(link, lambda here: link_troubled(here, status, kept))

    def task_trouble(self, link: str, task: str, trouble: Trouble | None) -> None:
        """Note what is wrong with a task of a link."""
        kept = noted(trouble, self.site.now_ms())
        Changing(self.site).change_link(link, lambda here: task_troubled(here, task, kept))

    def complete(self, full_name: str) -> None:
        """Note that a mirror's first copy has reached the end its source had when it began."""
        self._changed(full_name, lambda kept: replace(kept.entry, first_copy_done=True))

    def _changed(self, full_name: str, of: Callable[[Kept], object]) -> MirrorSeen:
        Changing(self.site).change(full_name, self.mirror(full_name).link, of)  # type: ignore[arg-type]
        return self.mirror(full_name)

    def _changing(self, may_go_on: Callable[[], None]) -> Changing:
        return Changing(self.site, may_go_on)


_BEGUN: Final[Mapping[str, Any]] = {"topic_id": None, "epochs": [], "chunk": 0}


def _seen(site: Site, states: States, kept: Kept, topic: TopicSeen) -> MirrorSeen:
    found = states.found(kept)
    mirror = kept.entry
    return MirrorSeen(
        site.cluster,
        kept.name,
        topic.id,
        kept.link,
        "" if found is None else found[1].source_cluster,
        mirror.source,
        states.status(kept),
        len(topic.replicas),
        mirror.since_ms,
        mirror.source_topic_id,
        _operation(kept.operation),
        _told(mirror.trouble),
        mirror.stopped_by,
        mirror.is_automatic,
        mirror.first_copy_done,
        mirror.begins,
    )


def _position(kept: Kept, progress: Mapping[str, object] | None, number: int) -> Position:
    begins = (kept.entry.begins or {}).get(number, 0)
    if progress is None or progress.get("copy_id") not in {None, kept.topic_id}:
        return Position(begins, begins)
    through, epochs = progress["through"], progress["epochs"]
    assert isinstance(through, int)  # noqa: S101 - we wrote it
    assert isinstance(epochs, list)  # noqa: S101 - as above
    topic_id = progress["topic_id"]
    return Position(
        begins,
        through,
        source_topic_id=None if topic_id is None else str(topic_id),
        source_epochs=tuple((epoch, start) for epoch, start in epochs),
        fetched=through,
    )


def _operation(kept: OperationEntry | None) -> Operation | None:
    return None if kept is None else Operation(kept.id, kept.verb, kept.ends or {})


def _told(trouble: TroubleEntry | None) -> Trouble | None:
    return None if trouble is None else _trouble(trouble)


def _trouble(trouble: TroubleEntry) -> Trouble:
    return Trouble(trouble.code, trouble.message, trouble.since_ms)


def _cannot(full_name: str, what: str) -> NoReturn:
    message = f"mirror {full_name} cannot be {what}: a Kafka cluster keeps nobody from writing to a topic"
    raise UserError(message, hint="Promote or fail it over, and link the other way.")
