"""Links of a Kafka cluster, their actions, and the sink of a mirror.

Offsets of a mirror are those of its source here: its own are others, and the offset map says which.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotAuthorizedError, NotFoundError, ReconcilerError, UserError
from reconciler.lifecycles import MIRROR, MirrorStatus
from reconciler.planning.actions import ControlAction, Create, Delete, Transition, Update
from reconciler.providers.kafka.admin_requests import PLATFORM, unsupported
from reconciler.providers.kafka.client import UNAUTHORIZED
from reconciler.providers.kafka.faults import error_of_code
from reconciler.providers.kafka.ledger import (
    LINK_ENTRY,
    MIRROR_ENTRY,
    PROGRESS,
    Changes,
    Entries,
    progress_key,
    writer_of,
)
from reconciler.providers.kafka.links import link_groups
from reconciler.providers.kafka.links.link_changes import LinkChanges, MirrorCreation, New
from reconciler.providers.kafka.links.link_site import Site, make_ledger, marks
from reconciler.providers.kafka.links.link_states import (
    KeptMirror,
    States,
    link_changes,
    mirror_changes,
    states_of,
    synced_keys,
)
from reconciler.providers.kafka.offsets import bounds_of
from reconciler.providers.kafka.translate import TopicSeen, own_values
from reconciler.providers.models import (
    MirrorBook,
    apply_declared_changes,
    field_changes,
    link_entry,
    link_seen,
    mirror_seen,
    planned_source,
)
from reconciler.providers.protocol import Done, Failed, Outcome
from reconciler.providers.protocol_links import TopicMark
from reconciler.resources.acls import DENIED, rule_at
from reconciler.resources.address import full_name_of
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mirrors import (
    ONE_SIDED,
    DivergedPartition,
    ForeignRecords,
    LinkEntry,
    LinkSeen,
    MirrorEntry,
    MirrorSeen,
    Operation,
    Position,
    TransitionRequest,
    TruncatedPartition,
    altered_link,
    begun,
    check_own,
    check_same_link,
    created_link,
)
from reconciler.runtime.retry import go_on

if TYPE_CHECKING:
    from reconciler.providers.kafka.links.failback import Failback
    from reconciler.providers.kafka.links.link_sync import KafkaSyncs
    from reconciler.providers.kafka.records.copy_sink import CopySink
    from reconciler.records.log import Bounds, TopicLog
    from reconciler.records.offset_map import OffsetMap


@dataclass(frozen=True)
class KafkaLinks(MirrorBook):
    """`Links` over the ledger of a Kafka cluster."""

    site: Site
    log: Callable[[str], TopicLog] | None = None
    """The records of a topic, by its full name: what a failback keeps of them needs it."""

    @property
    def by_jobs(self) -> KafkaLinks:
        """Jobs copy its mirrors."""
        return self

    @property
    def syncs(self) -> KafkaSyncs:
        """What links keep in step beside records."""
        from reconciler.providers.kafka.links.link_sync import KafkaSyncs  # noqa: PLC0415 - only who drives links pays

        return KafkaSyncs(self.site)

    def change_mirror(self, full_name: str, decide: Callable[[MirrorEntry], MirrorEntry]) -> None:
        """Replace the entry of a mirror by one record of the ledger."""
        LinkChanges(self.site).change(full_name, self.mirror(full_name).link, decide)

    def change_link(self, name: str, decide: Callable[[LinkEntry], LinkEntry]) -> None:
        """Replace the entry of a link by one record of the ledger."""
        LinkChanges(self.site).change_link(name, decide)

    def now_ms(self) -> int:
        """Return the time by the clock of the caller."""
        return self.site.now_ms()

    def marks(self) -> Mapping[str, TopicMark]:
        """Return every topic, and what changes whenever one of its partitions does."""
        return marks(self.site)

    def remembered(self, job: str) -> Mapping[str, list[Any]]:  # noqa: ARG002 - nothing is kept
        """Return nothing: another process looks once more, and that is all that is lost."""
        return {}

    def remember(self, job: str, rows: Mapping[str, list[Any]]) -> None:
        """Keep nothing: a job remembers by itself as long as its process runs."""

    def links(self) -> Sequence[LinkSeen]:
        """Return the links, by name: the ledger alone is read."""
        return [link_seen(name, self.site.cluster, link) for name, link in sorted(self.site.states().links.items())]

    def mirrors(
        self, link: str | None = None, *, name: str | None = None, source: str | None = None
    ) -> Sequence[MirrorSeen]:
        """Return the mirrors whose topics are there, by full name: the ledger, and one request."""
        states = self.site.states()
        wanted = [
            topic
            for topic, kept in sorted(states.mirrors.items())
            if link in {None, kept.link} and name in {None, kept.name} and source in {None, kept.entry.source}
        ]
        topics = self.site.seen(wanted)
        live = states.live({name: seen.id for name, seen in topics.items()})
        found = [_seen(self.site, live, kept, topics[topic]) for topic, kept in live.mirrors.items() if topic in wanted]
        return sorted(found, key=lambda each: each.name)

    def lost(self, link: str) -> Sequence[str]:
        """Return the mirrors whose topics are gone, or were made anew by others, by full name."""
        states = self.site.states()
        of_link = {topic: kept for topic, kept in states.of(link) if kept.topic_id is not None and kept.follows}
        topics = self.site.client.topics(list(of_link))
        live = states.live({name: seen.id for name, seen in topics.items() if not seen.error}).mirrors
        hidden = {name for name, seen in topics.items() if seen.error == UNAUTHORIZED}
        return sorted(kept.name for topic, kept in of_link.items() if topic not in live and topic not in hidden)

    def hidden(self, shown: Collection[str], link: str | None = None) -> Mapping[str, NotAuthorizedError]:
        """Return the mirrors that are to be copied, are not among `shown` and may not be described, by full name."""
        states = self.site.states()
        silent = {
            topic: kept.name
            for topic, kept in sorted(states.mirrors.items())
            if kept.name not in shown and kept.topic_id is not None and link in {None, kept.link}
            if states.status(kept) in _COPIED
        }
        topics = self.site.client.topics(list(silent))
        return {
            silent[name]: self.site.client.hidden(name) for name, seen in topics.items() if seen.error == UNAUTHORIZED
        }

    def mirror(self, full_name: str) -> MirrorSeen:
        """Return one mirror.

        Raises:
            UserError: There is no such topic, or it is not mirrored.
        """
        topic, seen = self.site.topic(full_name)
        states = self.site.states()
        if seen is None:
            raise NotFoundError(f"topic {full_name} does not exist", hint="See which there are: reconciler topic list")
        return _seen(self.site, states, states.mirror(topic, full_name, seen.id), seen)

    def positions(self, full_name: str) -> Mapping[int, Position]:
        """Return how far the partitions of a mirror have come, in offsets of its source; else where a topic stands."""
        found = self.positions_of([full_name])
        if full_name not in found:
            self.site.topic(full_name)  # refuses who may not know whether it is there
            raise NotFoundError(f"topic {full_name} does not exist", hint="See which there are: reconciler topic list")
        return found[full_name]

    def positions_of(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return the same of many topics that are there: the ledger, and a few requests to each leader."""
        names = {self.site.naming.physical(full_name): full_name for full_name in full_names}
        topics = self.site.seen(sorted(names))
        entries = self.site.ledger.read(LINK_ENTRY, MIRROR_ENTRY, PROGRESS)
        live = states_of(entries).live({topic: seen.id for topic, seen in topics.items()}).mirrors
        own = {topic for topic in topics if topic not in live or not live[topic].follows}
        places = [(topic, number) for topic in sorted(own) for number in range(len(topics[topic].replicas))]
        found: dict[str, dict[int, Position]] = {names[topic]: {} for topic in topics}
        for (topic, number), at in bounds_of(self.site.client, places).items():
            found[names[topic]][number] = Position(at.start, at.end, at.epochs)
        for topic in topics.keys() & live.keys():
            copied = {
                number: _position(live[topic], entries.get(progress_key(topic, number)), number)
                for number in range(len(topics[topic].replicas))
            }
            if topic in own:  # It stands for itself, and what it copied last is told beside that.
                copied = {number: _stopped(found[names[topic]][number], at) for number, at in copied.items()}
            found[names[topic]] = copied
        return found

    def newest_of(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, int]]:
        """Return the latest timestamp that was copied into each partition of mirrors, where that is known."""
        names = {self.site.naming.physical(full_name): full_name for full_name in full_names}
        found: dict[str, dict[int, int]] = {}
        for (_, topic, number, *_), progress in self.site.ledger.read(PROGRESS).items():
            newest_ms = progress.get("newest_ms")
            if topic in names and newest_ms is not None:
                found.setdefault(names[str(topic)], {})[int(number)] = newest_ms
        return found

    def ask(
        self, full_name: str, verb: str, *, operation: str = "", may_go_on: Callable[[], None] = go_on
    ) -> MirrorSeen:
        """Ask for a verb of the table; one that stops has shut out whoever copied when this returns."""
        found = self._changing(may_go_on).ask({full_name: self.mirror(full_name).link}, verb, operation)[full_name]
        if isinstance(found, ReconcilerError):
            raise found
        return self.mirror(full_name)

    def join(
        self, full_name: str, of: MirrorSeen, operation: Operation, *, may_go_on: Callable[[], None] = go_on
    ) -> MirrorSeen:
        """Let an ordinary topic become the mirror of its own mirror; brokers refuse records until it is one."""
        self._failback(may_go_on).join(full_name, of, operation)
        return self.mirror(full_name)

    def shut(self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = go_on) -> None:
        """Seal a mirror until an operation is over."""
        self._failback(may_go_on).shut(full_name, operation)

    def advance(
        self,
        full_name: str,
        to: MirrorStatus,
        *,
        operation: str,
        is_given_up: bool = False,
        may_go_on: Callable[[], None] = go_on,
    ) -> MirrorSeen:
        """Let a mirror go to the next state of its operation."""
        asked = TransitionRequest(self.site.now_ms(), operation, is_given_up)
        self._changing(may_go_on).advance(full_name, self.mirror(full_name).link, to, asked)
        return self.mirror(full_name)

    def truncate(
        self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = go_on
    ) -> Mapping[int, TruncatedPartition]:
        """Empty partitions that have records their mirror never got: no broker cuts the end of a log."""
        return self._failback(may_go_on).empty(self.mirror(full_name), operation)

    def diverged(self, full_name: str, cuts: Mapping[int, int]) -> Sequence[DivergedPartition]:
        """Return what a topic has that its mirror never got; its records are read."""
        return self._failback(go_on).diverged(full_name, cuts)

    def offset_maps(self, full_name: str) -> Mapping[int, OffsetMap]:
        """Return where records of its source lie in a mirror, or in what was one."""
        return self._failback(go_on).maps(full_name)

    def stand(
        self,
        full_name: str,
        source_topic_id: str,
        bounds: Mapping[int, Bounds],
        *,
        operation: str,
        maps: Mapping[int, OffsetMap] | None = None,
    ) -> None:
        """Note up to where a new mirror has what its source has, and where that lies in it."""
        if maps is None:
            message = f"mirror {full_name} cannot continue at its source's offsets: its own differ"
            raise UserError(message, hint="Delete the topic, and mirror it again.")
        self._failback(go_on).stand(full_name, source_topic_id, bounds, maps, operation)
        link_groups.release(self.site, self.mirror(full_name).link, self.site.naming.physical(full_name))

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

        self.site.ledger.change(writer_of(self.mirror(full_name).link), decide, LINK_ENTRY, MIRROR_ENTRY, PROGRESS)
        return self.mirror(full_name)

    def foreign(
        self,
        full_names: Collection[str],
        *,
        is_stopped: bool = False,
        on_unknown: Callable[[str, ReconcilerError], None] | None = None,
    ) -> Mapping[str, Sequence[ForeignRecords]]:
        """Return the records in mirrors that their links did not copy."""
        from reconciler.providers.kafka.links.foreign_records import foreign_records  # noqa: PLC0415 - few ask

        return foreign_records(self.site, full_names, is_stopped=is_stopped, on_unknown=on_unknown)

    def follow_starts(self, full_name: str, starts: Mapping[int, int]) -> None:
        """Delete below the log starts of the source, by the offset map, where retention is synced."""
        from reconciler.providers.kafka.links.link_sync import follow_starts  # noqa: PLC0415 - only who drives links

        follow_starts(self.site, full_name, starts)

    def _changing(self, may_go_on: Callable[[], None]) -> LinkChanges:
        return LinkChanges(self.site, may_go_on)

    def _failback(self, may_go_on: Callable[[], None]) -> Failback:
        from reconciler.providers.kafka.links.failback import Failback  # noqa: PLC0415 - only who fails back pays

        return Failback(self.site, self.log, may_go_on)


_COPIED: Final = frozenset({MirrorStatus.ACTIVE, MirrorStatus.SOURCE_UNAVAILABLE})
_BEGUN: Final[Mapping[str, Any]] = {"topic_id": None, "epochs": [], "chunk": 0, "commits": 0}


def _seen(site: Site, states: States, kept: KeptMirror, topic: TopicSeen) -> MirrorSeen:
    of = states.found(kept) or (kept.link, None)
    seen = mirror_seen(site.cluster, kept.name, (topic.id, len(topic.replicas)), of, kept.entry)
    return seen if kept.opening is None else replace(seen, status=states.status(kept), operation=kept.operation)


def _position(kept: KeptMirror, progress: Mapping[str, object] | None, number: int) -> Position:
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


def _stopped(own: Position, copied: Position) -> Position:
    """Return where an ordinary topic stands that was a mirror: in its own offsets, and what it copied last."""
    return replace(
        own,
        source_topic_id=copied.source_topic_id,
        source_epochs=copied.source_epochs,
        fetched=copied.fetched,
        is_renumbered=True,
    )


# Which actions are about links and mirrors: others carry them out than those about topics.


def is_about_links(action: ControlAction) -> bool:
    """Tell whether an action is about a link or a mirror."""
    match action:
        case Create(after=MirrorLink() | MirrorTopic()) | Update(after=MirrorLink() | MirrorTopic()):
            return True
        case Delete(before=MirrorLink() | MirrorTopic()):
            return True
        case Transition(machine=machine):
            return machine == MIRROR.name
        case _:
            return False


# Actions about links and mirrors carried out: those of one link at once.


_FIRST: Final = (Delete, Transition)


def carried_out(site: Site, actions: Sequence[ControlAction], may_go_on: Callable[[], None]) -> Iterator[Outcome]:
    """Do actions about links and mirrors and yield one outcome each; what was done before is done once.

    Raises:
        LeaseError: By `may_go_on`; what was begun is finished by the next process.
    """
    carrying = _LinkWorker(site, may_go_on)
    ordered = sorted(actions, key=lambda action: not isinstance(action, _FIRST))
    found: dict[str, str | ReconcilerError | None] = {}
    found |= carrying.transitions([each for each in ordered if isinstance(each, Transition)])
    for action in ordered:
        if action.id not in found and not (isinstance(action, Create) and isinstance(action.after, MirrorTopic)):
            try:
                found[action.id] = carrying.one(action)
            except ReconcilerError as error:
                found[action.id] = error
    found |= carrying.mirrors([each for each in ordered if isinstance(each, Create) and each.id not in found])
    for action in actions:
        outcome = found[action.id]
        if isinstance(outcome, ReconcilerError):
            yield Failed(action.id, outcome)
        else:
            yield Done(action.id, outcome, _physical(site, action))


def _physical(site: Site, action: ControlAction) -> str | None:
    is_mirror = isinstance(action, Transition) or isinstance(getattr(action, "after", None), MirrorTopic)
    return site.naming.physical(full_name_of(action.address)) if is_mirror else None


class _LinkWorker:
    def __init__(self, site: Site, may_go_on: Callable[[], None]) -> None:
        self._site, self._may_go_on = site, may_go_on

    def transitions(self, asked: Sequence[Transition]) -> dict[str, str | ReconcilerError]:
        """Pause, resume and fail over mirrors; what needs both clusters is driven by who knows both."""
        found: dict[str, str | ReconcilerError] = {}
        try:
            of = {kept.name: kept.link for kept in self._site.states().mirrors.values()} if asked else {}
        except ReconcilerError as error:
            return {action.id: error for action in asked}
        for verb in sorted({action.verb for action in asked}):
            some = {full_name_of(action.address): action for action in asked if action.verb == verb}
            if verb not in ONE_SIDED:
                found |= {action.id: unsupported(action) for action in some.values()}
                continue
            known = {name: of[name] for name in some if name in of}
            outcomes = LinkChanges(self._site, self._may_go_on).ask_once(known, verb)
            for name, action in some.items():
                message = f"topic {name} is not mirrored"
                missing = NotFoundError(message, hint="See the mirrors with: reconciler mirror list")
                found[action.id] = outcomes.get(name, missing)
        return found

    def mirrors(self, asked: Sequence[Create]) -> dict[str, str | ReconcilerError]:
        """Make mirrors, those of one link at once."""
        found: dict[str, str | ReconcilerError] = {}
        by_link: dict[str, dict[str, tuple[Create, New]]] = {}
        for action in asked:
            mirror = action.after
            assert isinstance(mirror, MirrorTopic)  # noqa: S101 - the rest was done before
            try:
                new = New(
                    mirror.source,
                    planned_source(mirror.address, action.parameters),
                    mirror.configs,
                    denied=mirror.denied,
                )
            except ReconcilerError as error:
                found[action.id] = error
            else:
                by_link.setdefault(mirror.link, {})[mirror.name] = (action, new)
        for link, some in by_link.items():
            made = self._made(link, {name: new for name, (_, new) in some.items()})
            found |= {action.id: made[name] for name, (action, _) in some.items()}
        return found

    def _made(self, link: str, wanted: dict[str, New]) -> dict[str, str | ReconcilerError]:
        try:
            return MirrorCreation(self._site, self._may_go_on).make(link, wanted)
        except ReconcilerError as error:
            return dict.fromkeys(wanted, error)

    def one(self, action: ControlAction) -> str | None:
        """Do one action that is about a link, changes a mirror, or deletes one; return what it leaves."""
        match action:
            case Create(after=MirrorLink() as link):
                return self._make_link(link)
            case Update(after=MirrorLink() as link):
                name = link.metadata.name
                changing = LinkChanges(self._site, self._may_go_on)
                return changing.change_link(
                    name,
                    lambda entry: altered_link(name, entry, apply_declared_changes(entry.declared, action.changes)),
                ).id
            case Update(after=MirrorTopic() as mirror):
                return self._configure(mirror, action)
            case Delete(before=MirrorLink() as link):
                name = link.metadata.name
                check_same_link(name, self._site.states().links.get(name), action.incarnation)
                MirrorCreation(self._site, self._may_go_on).delete_link(name)
                return None
            case Delete(before=MirrorTopic() as mirror):
                MirrorCreation(self._site, self._may_go_on).delete(mirror.link, mirror.name, action.incarnation)
                return None
            case _:
                raise unsupported(action)

    def _make_link(self, link: MirrorLink) -> str:
        """Make a link. One that is there and asks for the same is left alone."""
        name = link.metadata.name
        new = link_entry(link, self._site.new_id())

        def decide(entries: Entries) -> Changes:
            existing = states_of(entries).links.get(name)
            after = created_link(name, existing, new)
            return {} if after is existing else link_changes(name, after)

        self._may_go_on()
        return states_of(self._site.ledger.change(writer_of(name), decide)).links[name].id

    def _configure(self, mirror: MirrorTopic, action: Update) -> str:
        """Change a mirror's own configs, and whom it is protected from."""
        topic, seen = self._site.topic(mirror.name)
        states = self._site.states()
        kept = states.mirror(topic, mirror.name, None if seen is None else seen.id)
        wanted = field_changes(action.address, action.changes, platform=PLATFORM)
        link = states.link(kept.link)
        check_own(mirror.name, synced_keys(link), wanted.configs)
        partitions = 0 if seen is None else len(seen.replicas)
        ((_, configs),) = self._site.client.configs([topic])
        if seen is not None and isinstance(configs, int):
            raise error_of_code(configs, "", what=f"configs of {mirror.address}")
        own = {} if isinstance(configs, int) else own_values(configs)
        self._site.shape(mirror.name, (partitions, own), (partitions, wanted.configs), self._may_go_on)
        if wanted.rules:
            self._may_go_on()
            from reconciler.providers.kafka.links.link_groups import deny  # noqa: PLC0415 - only who protects pays

            asked = {rule_at(path, DENIED).principal: after is not None for path, after in wanted.rules.items()}
            denied = {who for who in {*kept.denied, *asked} if asked.get(who, True)}
            deny(self._site, kept.link, {topic: tuple(sorted(denied))})
        return kept.topic_id or ""


# Which sink a topic has: that of its link where it is a mirror, else that of whoever copies into it.


COPY: Final = "copy"
"""Who copies into a topic that is no mirror: restores and moves, one of them at a time."""
_BATCH_BYTES: Final = 1_000_000
_BATCH_OVERHEAD: Final = 1_024
_LZ4: Final = "lz4"
_AS_SENT: Final = {"producer": _LZ4, "uncompressed": "none"}


def sink_of(site: Site, settings: Mapping[str, Any], full_name: str) -> CopySink:
    """Return where records of a topic are copied to; `settings` are those of confluent-kafka, secrets hidden.

    Raises:
        UserError: There is no such topic.
    """
    from reconciler.providers.kafka.records.copy_sink import CopySink, Target  # noqa: PLC0415 - brings numpy

    topic, seen = site.topic(full_name)
    if seen is None:
        message = f"cluster {site.cluster} has no topic {topic}"
        raise NotFoundError(message, hint="See which there are: reconciler topic list")
    kept = site.states().live({topic: seen.id}).mirrors.get(topic)
    configs = _configs(site, topic)
    more, partitions = _writing(configs), len(seen.replicas)
    if kept is None or not kept.follows:
        make_ledger(site.client)
        return CopySink(Target(settings, site.cluster, topic, seen.id, partitions, COPY, writing=more))
    owner, begins = kept.entry.link_id, kept.entry.begins or {}
    target = Target(settings, site.cluster, topic, seen.id, partitions, owner, kept.link, begins, writing=more)
    return CopySink(target, partial(_complete, site, full_name), ledger=site.ledger, deletes=_deletes(configs))


def _complete(site: Site, full_name: str) -> None:
    """Note the first copy once: what is noted again would be looked at by every copier."""
    links = KafkaLinks(site)
    if not links.mirror(full_name).first_copy_done:
        links.change_mirror(full_name, lambda entry: replace(entry, first_copy_done=True))


def _configs(site: Site, topic: str) -> Mapping[str, str]:
    """Return the configs of a topic that have a value; none where they may not be described."""
    ((_, configs),) = site.client.configs([topic])
    return {} if isinstance(configs, int) else {key: each.value for key, each in configs.items() if each.value}


def _deletes(configs: Mapping[str, str]) -> bool:
    """Tell whether brokers delete old records of a topic; without its configs that is not known, and taken for so."""
    is_kept = all(configs.get(name) == "-1" for name in ("retention.ms", "retention.bytes"))
    return "delete" in configs.get("cleanup.policy", "delete") and not is_kept


def _writing(values: Mapping[str, str]) -> dict[str, Any]:
    """Return how batches are sent: as the topic keeps them, so that its brokers need not pack them anew."""
    kept_as = values.get("compression.type") or "producer"
    most = int(values.get("max.message.bytes") or _BATCH_BYTES)
    return {
        "compression.type": _AS_SENT.get(kept_as, kept_as),
        "batch.size": max(1, min(_BATCH_BYTES, most - _BATCH_OVERHEAD)),
    }
