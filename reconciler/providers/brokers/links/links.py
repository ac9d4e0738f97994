"""Links of a Kafka cluster, their actions, and sinks for mirrors.

A mirror's positions are source offsets, translated by the offset map.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import NotAuthorizedError, NotFoundError, ReconcilerError, UserError
from reconciler.lifecycles import MIRROR, MirrorStatus
from reconciler.planning.actions import ControlAction, Create, Delete, Transition, Update
from reconciler.providers.brokers.admin_requests import PLATFORM, unsupported_error
from reconciler.providers.brokers.client import UNAUTHORIZED
from reconciler.providers.brokers.faults import translate_code
from reconciler.providers.brokers.ledger import (
    LINK_ENTRY,
    MIRROR_ENTRY,
    PROGRESS,
    Changes,
    Entries,
    build_writer_id,
    progress_key,
)
from reconciler.providers.brokers.links import link_groups
from reconciler.providers.brokers.links.link_changes import LinkChanges, MirrorCreation, NewMirror
from reconciler.providers.brokers.links.link_site import LinkSite, create_ledger_topic, read_topic_marks
from reconciler.providers.brokers.links.link_states import (
    LinkStates,
    RecordedMirror,
    build_link_changes,
    build_mirror_changes,
    list_synced_keys,
    parse_states,
)
from reconciler.providers.brokers.offsets import read_bounds
from reconciler.providers.brokers.translate import TopicMetadata, select_own_configs
from reconciler.providers.models import (
    MirrorEntries,
    apply_declared_changes,
    convert_changes,
    read_planned_source,
    to_link_entry,
    to_observed_link,
    to_observed_mirror,
)
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome
from reconciler.providers.protocol_links import TopicMark
from reconciler.resources.acls import DENIED, parse_rule
from reconciler.resources.address import full_name_of
from reconciler.resources.mirror_link import MirrorLink, MirrorTopic
from reconciler.resources.mirrors import (
    ONE_SIDED,
    DivergedPartition,
    ForeignRecords,
    LinkEntry,
    MirrorEntry,
    ObservedLink,
    ObservedMirror,
    Operation,
    Position,
    TransitionRequest,
    TruncatedPartition,
    alter_link_entry,
    check_own_configs,
    check_same_link,
    create_link_entry,
    set_first_offsets,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.providers.brokers.links.failback import Failback
    from reconciler.providers.brokers.links.link_sync import KafkaSyncs
    from reconciler.providers.brokers.records.copy_sink import CopySink
    from reconciler.records.log import Bounds, TopicLog
    from reconciler.records.offset_map import OffsetMap

# ruff: noqa: PLC0415 - only a pass that copies needs these


@dataclass(frozen=True)
class KafkaLinks(MirrorEntries):
    """`Links` of a Kafka cluster, stored in its ledger."""

    site: LinkSite
    log: Callable[[str], TopicLog] | None = None
    """Opens a topic's log by full name. Only failbacks that keep diverged records need it."""

    @property
    def job_steps(self) -> KafkaLinks:
        """This object, because jobs copy its mirrors."""
        return self

    @property
    def syncs(self) -> KafkaSyncs:
        """Sync of topics, configs, groups and access rules."""
        from reconciler.providers.brokers.links.link_sync import KafkaSyncs

        return KafkaSyncs(self.site)

    def change_mirror(self, full_name: str, decide: Callable[[MirrorEntry], MirrorEntry]) -> None:
        """Replace a mirror's entry by the result of `decide`."""
        LinkChanges(self.site).change_mirror(full_name, self.read_mirror(full_name).link, decide)

    def change_link(self, name: str, decide: Callable[[LinkEntry], LinkEntry]) -> None:
        """Replace a link's entry by the result of `decide`."""
        LinkChanges(self.site).change_link(name, decide)

    def now_ms(self) -> int:
        """Return the local time in ms."""
        return self.site.now_ms()

    def list_topic_marks(self) -> Mapping[str, TopicMark]:
        """Return all topics with marks."""
        return read_topic_marks(self.site)

    def load_job_rows(self, job: str) -> Mapping[str, list[Any]]:  # noqa: ARG002 - nothing is kept
        """Return nothing, so a restarted job checks every partition again."""
        return {}

    def store_job_rows(self, job: str, rows: Mapping[str, list[Any]]) -> None:
        """Do nothing, because a running job has its rows in memory."""

    def list_links(self) -> Sequence[ObservedLink]:
        """Return the links by name."""
        return [
            to_observed_link(name, self.site.cluster, link)
            for name, link in sorted(self.site.read_states().links.items())
        ]

    def list_mirrors(
        self, link: str | None = None, *, name: str | None = None, source: str | None = None
    ) -> Sequence[ObservedMirror]:
        """Return mirrors with existing topics, by full name."""
        states = self.site.read_states()
        wanted = [
            topic
            for topic, mirror in sorted(states.mirrors.items())
            if link in {None, mirror.link} and name in {None, mirror.name} and source in {None, mirror.entry.source}
        ]
        topics = self.site.read_topics(wanted)
        live = states.select_live({name: seen.id for name, seen in topics.items()})
        mirrors = [
            _describe_mirror(self.site, live, mirror, topics[topic])
            for topic, mirror in live.mirrors.items()
            if topic in wanted
        ]
        return sorted(mirrors, key=lambda mirror: mirror.name)

    def list_lost_mirrors(self, link: str) -> Sequence[str]:
        """Return mirrors whose topics were deleted or recreated."""
        states = self.site.read_states()
        of_link = {
            topic: mirror
            for topic, mirror in states.list_mirrors(link)
            if mirror.topic_id is not None and mirror.is_mirroring
        }
        topics = self.site.client.read_topics(list(of_link))
        live = states.select_live({name: seen.id for name, seen in topics.items() if not seen.error}).mirrors
        hidden = {name for name, seen in topics.items() if seen.error == UNAUTHORIZED}
        return sorted(mirror.name for topic, mirror in of_link.items() if topic not in live and topic not in hidden)

    def find_hidden_mirrors(self, shown: Collection[str], link: str | None = None) -> Mapping[str, NotAuthorizedError]:
        """Return errors of hidden mirrors."""
        states = self.site.read_states()
        silent = {
            topic: mirror.name
            for topic, mirror in sorted(states.mirrors.items())
            if mirror.name not in shown and mirror.topic_id is not None and link in {None, mirror.link}
            if states.compute_status(mirror) in _COPIED_STATUSES
        }
        topics = self.site.client.read_topics(list(silent))
        return {
            silent[name]: self.site.client.build_hidden_error(name)
            for name, seen in topics.items()
            if seen.error == UNAUTHORIZED
        }

    def read_mirror(self, full_name: str) -> ObservedMirror:
        """Return an active or stopped mirror; raise if none exists."""
        topic, seen = self.site.read_topic(full_name)
        states = self.site.read_states()
        if seen is None:
            raise NotFoundError(f"topic {full_name} does not exist", hint="List the topics with: reconciler topic list")
        return _describe_mirror(self.site, states, states.require_mirror(topic, full_name, seen.id), seen)

    def read_positions(self, full_name: str) -> Mapping[int, Position]:
        """Return a mirror's positions as source offsets, or another topic's own."""
        positions = self.read_positions_of_topics([full_name])
        if full_name not in positions:
            self.site.read_topic(full_name)
            raise NotFoundError(f"topic {full_name} does not exist", hint="List the topics with: reconciler topic list")
        return positions[full_name]

    def read_positions_of_topics(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return the positions of existing topics."""
        names = {self.site.naming.to_physical(full_name): full_name for full_name in full_names}
        topics = self.site.read_topics(sorted(names))
        entries = self.site.ledger.read(LINK_ENTRY, MIRROR_ENTRY, PROGRESS)
        live = parse_states(entries).select_live({topic: seen.id for topic, seen in topics.items()}).mirrors
        own = {topic for topic in topics if topic not in live or not live[topic].is_mirroring}
        places = [(topic, number) for topic in sorted(own) for number in range(len(topics[topic].replicas))]
        positions: dict[str, dict[int, Position]] = {names[topic]: {} for topic in topics}
        for (topic, number), at in read_bounds(self.site.client, places).items():
            positions[names[topic]][number] = Position(at.start, at.end, at.epochs)
        for topic in topics.keys() & live.keys():
            copied = {
                number: _parse_position(live[topic], entries.get(progress_key(topic, number)), number)
                for number in range(len(topics[topic].replicas))
            }
            if topic in own:
                copied = {
                    number: _add_source_position(positions[names[topic]][number], at) for number, at in copied.items()
                }
            positions[names[topic]] = copied
        return positions

    def read_newest_timestamps(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, int]]:
        """Return latest copied timestamps in ms, by mirror and partition. Unknown ones are absent."""
        names = {self.site.naming.to_physical(full_name): full_name for full_name in full_names}
        newest_by_topic: dict[str, dict[int, int]] = {}
        for (_, topic, number, *_), progress in self.site.ledger.read(PROGRESS).items():
            newest_ms = progress.get("newest_ms")
            if topic in names and newest_ms is not None:
                newest_by_topic.setdefault(names[str(topic)], {})[int(number)] = newest_ms
        return newest_by_topic

    def request_verb(
        self, full_name: str, verb: str, *, operation: str = "", may_go_on: Callable[[], None] = skip_check
    ) -> ObservedMirror:
        """Request a verb for a mirror. If it stops mirroring, copiers are fenced on return."""
        result = self._make_changes(may_go_on).request_verb(
            {full_name: self.read_mirror(full_name).link}, verb, operation
        )[full_name]
        if isinstance(result, ReconcilerError):
            raise result
        return self.read_mirror(full_name)

    def convert_to_mirror(
        self, full_name: str, of: ObservedMirror, operation: Operation, *, may_go_on: Callable[[], None] = skip_check
    ) -> ObservedMirror:
        """Seal a topic, and make it the mirror of `of`, which was its mirror."""
        self._make_failback(may_go_on).make_mirror(full_name, of, operation)
        return self.read_mirror(full_name)

    def refuse_producers(self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = skip_check) -> None:
        """Seal a mirror until an operation ends."""
        self._make_failback(may_go_on).refuse_producers(full_name, operation)

    def advance_state(
        self,
        full_name: str,
        to: MirrorStatus,
        *,
        operation: str,
        is_given_up: bool = False,
        may_go_on: Callable[[], None] = skip_check,
    ) -> ObservedMirror:
        """Move a mirror to its next state."""
        request = TransitionRequest(self.site.now_ms(), operation, is_given_up)
        self._make_changes(may_go_on).move_to_status(full_name, self.read_mirror(full_name).link, to, request)
        return self.read_mirror(full_name)

    def truncate(
        self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = skip_check
    ) -> Mapping[int, TruncatedPartition]:
        """Empty the mirror's partitions with records that its source never got."""
        return self._make_failback(may_go_on).empty_diverged_partitions(self.read_mirror(full_name), operation)

    def find_diverged_records(self, full_name: str, cuts: Mapping[int, int]) -> Sequence[DivergedPartition]:
        """Return the ranges of a topic's records that its mirror never got."""
        return self._make_failback(skip_check).find_diverged_ranges(full_name, cuts)

    def read_offset_maps(self, full_name: str) -> Mapping[int, OffsetMap]:
        """Return a mirror's offset maps by partition."""
        return self._make_failback(skip_check).read_offset_maps(full_name)

    def record_agreement(
        self,
        full_name: str,
        source_topic_id: str,
        bounds: Mapping[int, Bounds],
        *,
        operation: str,
        maps: Mapping[int, OffsetMap] | None = None,
    ) -> None:
        """Record the progress of a new mirror."""
        if maps is None:
            message = f"mirror {full_name} cannot continue at its source's offsets: its own differ"
            raise UserError(message, hint="Delete the topic, and mirror it again.")
        self._make_failback(skip_check).record_agreement(full_name, source_topic_id, bounds, maps, operation)
        link_groups.mark_offsets_synced(
            self.site, self.read_mirror(full_name).link, self.site.naming.to_physical(full_name)
        )

    def record_start_offsets(self, full_name: str, offsets: Mapping[int, int]) -> ObservedMirror:
        """Record a new mirror's first source offsets."""
        topic, seen = self.site.read_topic(full_name)

        def decide(entries: Entries) -> Changes:
            mirror = parse_states(entries).require_mirror(topic, full_name, None if seen is None else seen.id)
            after = replace(mirror, entry=set_first_offsets(mirror.entry, offsets))
            missing = {
                number: at
                for number, at in (after.entry.begins or {}).items()
                if progress_key(topic, number) not in entries
            }
            at_start = {**_NO_PROGRESS, "copy_id": mirror.topic_id}
            started = {progress_key(topic, number): {**at_start, "through": at} for number, at in missing.items()}
            return {**started, **({} if after == mirror else build_mirror_changes(topic, after))}

        self.site.ledger.change(
            build_writer_id(self.read_mirror(full_name).link), decide, LINK_ENTRY, MIRROR_ENTRY, PROGRESS
        )
        return self.read_mirror(full_name)

    def find_foreign_records(
        self,
        full_names: Collection[str],
        *,
        is_stopped: bool = False,
        on_unknown: Callable[[str, ReconcilerError], None] | None = None,
    ) -> Mapping[str, Sequence[ForeignRecords]]:
        """Return foreign records in mirrors."""
        from reconciler.providers.brokers.links.foreign_records import find_foreign_records

        return find_foreign_records(self.site, full_names, is_stopped=is_stopped, on_unknown=on_unknown)

    def delete_below_starts(self, full_name: str, starts: Mapping[int, int]) -> None:
        """Delete records below the source's log starts."""
        from reconciler.providers.brokers.links.link_sync import delete_below_source_starts

        delete_below_source_starts(self.site, full_name, starts)

    def _make_changes(self, may_go_on: Callable[[], None]) -> LinkChanges:
        return LinkChanges(self.site, may_go_on)

    def _make_failback(self, may_go_on: Callable[[], None]) -> Failback:
        from reconciler.providers.brokers.links.failback import Failback

        return Failback(self.site, self.log, may_go_on)


_COPIED_STATUSES: Final = frozenset({MirrorStatus.ACTIVE, MirrorStatus.SOURCE_UNAVAILABLE})
_NO_PROGRESS: Final[Mapping[str, Any]] = {"topic_id": None, "epochs": [], "chunk": 0, "commits": 0}


def _describe_mirror(
    site: LinkSite, states: LinkStates, mirror: RecordedMirror, topic: TopicMetadata
) -> ObservedMirror:
    of = states.find_link(mirror) or (mirror.link, None)
    seen = to_observed_mirror(site.cluster, mirror.name, (topic.id, len(topic.replicas)), of, mirror.entry)
    return (
        seen
        if mirror.opening is None
        else replace(seen, status=states.compute_status(mirror), operation=mirror.operation)
    )


def _parse_position(mirror: RecordedMirror, progress: Mapping[str, object] | None, number: int) -> Position:
    begins = (mirror.entry.begins or {}).get(number, 0)
    if progress is None or progress.get("copy_id") not in {None, mirror.topic_id}:
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


def _add_source_position(own: Position, copied: Position) -> Position:
    return replace(
        own,
        source_topic_id=copied.source_topic_id,
        source_epochs=copied.source_epochs,
        fetched=copied.fetched,
        is_renumbered=True,
    )


def is_about_links(action: ControlAction) -> bool:
    """Return whether an action is about a link or a mirror."""
    match action:
        case Create(after=MirrorLink() | MirrorTopic()) | Update(after=MirrorLink() | MirrorTopic()):
            return True
        case Delete(before=MirrorLink() | MirrorTopic()):
            return True
        case Transition(machine=machine):
            return machine == MIRROR.name
        case _:
            return False


_APPLIED_FIRST: Final = (Delete, Transition)


def apply_link_actions(
    site: LinkSite, actions: Sequence[ControlAction], may_go_on: Callable[[], None]
) -> Iterator[Outcome]:
    """Apply actions about links and mirrors, and yield each outcome. Idempotent."""
    applier = _ActionApplier(site, may_go_on)
    ordered = sorted(actions, key=lambda action: not isinstance(action, _APPLIED_FIRST))
    results: dict[str, str | ReconcilerError | None] = {}
    results |= applier.apply_transitions([action for action in ordered if isinstance(action, Transition)])
    for action in ordered:
        if action.id not in results and not (isinstance(action, Create) and isinstance(action.after, MirrorTopic)):
            try:
                results[action.id] = applier.apply_action(action)
            except ReconcilerError as error:
                results[action.id] = error
    results |= applier.create_mirrors(
        [action for action in ordered if isinstance(action, Create) and action.id not in results]
    )
    for action in actions:
        outcome = results[action.id]
        if isinstance(outcome, ReconcilerError):
            yield FailedAction(action.id, outcome)
        else:
            yield CompletedAction(action.id, outcome, _find_broker_name(site, action))


def _find_broker_name(site: LinkSite, action: ControlAction) -> str | None:
    is_mirror = isinstance(action, Transition) or isinstance(getattr(action, "after", None), MirrorTopic)
    return site.naming.to_physical(full_name_of(action.address)) if is_mirror else None


class _ActionApplier:
    def __init__(self, site: LinkSite, may_go_on: Callable[[], None]) -> None:
        self._site, self._may_go_on = site, may_go_on

    def apply_transitions(self, actions: Sequence[Transition]) -> dict[str, str | ReconcilerError]:
        results: dict[str, str | ReconcilerError] = {}
        try:
            links = (
                {mirror.name: mirror.link for mirror in self._site.read_states().mirrors.values()} if actions else {}
            )
        except ReconcilerError as error:
            return {action.id: error for action in actions}
        for verb in sorted({action.verb for action in actions}):
            actions_by_name = {full_name_of(action.address): action for action in actions if action.verb == verb}
            if verb not in ONE_SIDED:
                results |= {action.id: unsupported_error(action) for action in actions_by_name.values()}
                continue
            known = {name: links[name] for name in actions_by_name if name in links}
            outcomes = LinkChanges(self._site, self._may_go_on).request_verb_once(known, verb)
            for name, action in actions_by_name.items():
                message = f"topic {name} is not mirrored"
                missing = NotFoundError(message, hint="See the mirrors with: reconciler mirror list")
                results[action.id] = outcomes.get(name, missing)
        return results

    def create_mirrors(self, actions: Sequence[Create]) -> dict[str, str | ReconcilerError]:
        results: dict[str, str | ReconcilerError] = {}
        by_link: dict[str, dict[str, tuple[Create, NewMirror]]] = {}
        for action in actions:
            mirror = action.after
            assert isinstance(mirror, MirrorTopic)  # noqa: S101 - the rest was done before
            try:
                new = NewMirror(
                    mirror.source,
                    read_planned_source(mirror.address, action.parameters),
                    mirror.configs,
                    denied=mirror.denied,
                )
            except ReconcilerError as error:
                results[action.id] = error
            else:
                by_link.setdefault(mirror.link, {})[mirror.name] = (action, new)
        for link, mirrors in by_link.items():
            created = self._create_on_link(link, {name: new for name, (_, new) in mirrors.items()})
            results |= {action.id: created[name] for name, (action, _) in mirrors.items()}
        return results

    def _create_on_link(self, link: str, wanted: dict[str, NewMirror]) -> dict[str, str | ReconcilerError]:
        try:
            return MirrorCreation(self._site, self._may_go_on).create_mirrors(link, wanted)
        except ReconcilerError as error:
            return dict.fromkeys(wanted, error)

    def apply_action(self, action: ControlAction) -> str | None:
        match action:
            case Create(after=MirrorLink() as link):
                return self._create_link(link)
            case Update(after=MirrorLink() as link):
                name = link.metadata.name
                changes = LinkChanges(self._site, self._may_go_on)
                return changes.change_link(
                    name,
                    lambda entry: alter_link_entry(name, entry, apply_declared_changes(entry.declared, action.changes)),
                ).id
            case Update(after=MirrorTopic() as mirror):
                return self._configure_mirror(mirror, action)
            case Delete(before=MirrorLink() as link):
                name = link.metadata.name
                check_same_link(name, self._site.read_states().links.get(name), action.incarnation)
                MirrorCreation(self._site, self._may_go_on).delete_link(name)
                return None
            case Delete(before=MirrorTopic() as mirror):
                MirrorCreation(self._site, self._may_go_on).delete_mirror(mirror.link, mirror.name, action.incarnation)
                return None
            case _:
                raise unsupported_error(action)

    def _create_link(self, link: MirrorLink) -> str:
        name = link.metadata.name
        new = to_link_entry(link, self._site.new_id())

        def decide(entries: Entries) -> Changes:
            existing = parse_states(entries).links.get(name)
            after = create_link_entry(name, existing, new)
            return {} if after is existing else build_link_changes(name, after)

        self._may_go_on()
        return parse_states(self._site.ledger.change(build_writer_id(name), decide)).links[name].id

    def _configure_mirror(self, mirror: MirrorTopic, action: Update) -> str:
        topic, seen = self._site.read_topic(mirror.name)
        states = self._site.read_states()
        current = states.require_mirror(topic, mirror.name, None if seen is None else seen.id)
        wanted = convert_changes(action.address, action.changes, platform=PLATFORM)
        link = states.require_link(current.link)
        check_own_configs(mirror.name, list_synced_keys(link), wanted.configs)
        partitions = 0 if seen is None else len(seen.replicas)
        ((_, configs),) = self._site.client.read_configs([topic])
        if seen is not None and isinstance(configs, int):
            raise translate_code(configs, "", what=f"configs of {mirror.address}")
        own = {} if isinstance(configs, int) else select_own_configs(configs)
        self._site.change_topic(mirror.name, (partitions, own), (partitions, wanted.configs), self._may_go_on)
        if wanted.rules:
            self._may_go_on()
            from reconciler.providers.brokers.links.link_groups import deny_writes

            denials = {parse_rule(path, DENIED).principal: after is not None for path, after in wanted.rules.items()}
            denied = {who for who in {*current.denied, *denials} if denials.get(who, True)}
            deny_writes(self._site, current.link, {topic: tuple(sorted(denied))})
        return current.topic_id or ""


COPY: Final = "copy"
_BATCH_BYTES: Final = 1_000_000
_BATCH_OVERHEAD: Final = 1_024
_LZ4: Final = "lz4"
_AS_SENT: Final = {"producer": _LZ4, "uncompressed": "none"}


def open_sink(site: LinkSite, settings: Mapping[str, Any], full_name: str) -> CopySink:
    """Return the sink for a topic's records; `settings` are those of confluent-kafka."""
    from reconciler.providers.brokers.records.copy_sink import CopySink, CopyTarget

    topic, seen = site.read_topic(full_name)
    if seen is None:
        message = f"cluster {site.cluster} has no topic {topic}"
        raise NotFoundError(message, hint="List the topics with: reconciler topic list")
    mirror = site.read_states().select_live({topic: seen.id}).mirrors.get(topic)
    configs = _read_configs(site, topic)
    more, partitions = _build_producer_settings(configs), len(seen.replicas)
    if mirror is None or not mirror.is_mirroring:
        create_ledger_topic(site.client)
        return CopySink(CopyTarget(settings, site.cluster, topic, seen.id, partitions, COPY, producer_settings=more))
    owner, begins = mirror.entry.link_id, mirror.entry.begins or {}
    target = CopyTarget(
        settings, site.cluster, topic, seen.id, partitions, owner, mirror.link, begins, producer_settings=more
    )
    return CopySink(
        target, partial(_record_first_copy, site, full_name), ledger=site.ledger, deletes=_deletes_old_records(configs)
    )


def _record_first_copy(site: LinkSite, full_name: str) -> None:
    """Record once that a mirror's first copy is complete; copiers reread an entry after each write."""
    links = KafkaLinks(site)
    if not links.read_mirror(full_name).first_copy_done:
        links.change_mirror(full_name, lambda entry: replace(entry, first_copy_done=True))


def _read_configs(site: LinkSite, topic: str) -> Mapping[str, str]:
    ((_, configs),) = site.client.read_configs([topic])
    return {} if isinstance(configs, int) else {key: config.value for key, config in configs.items() if config.value}


def _deletes_old_records(configs: Mapping[str, str]) -> bool:
    is_kept = all(configs.get(name) == "-1" for name in ("retention.ms", "retention.bytes"))
    return "delete" in configs.get("cleanup.policy", "delete") and not is_kept


def _build_producer_settings(values: Mapping[str, str]) -> dict[str, Any]:
    """Return settings that compress batches like the topic, so brokers need not."""
    compression = values.get("compression.type") or "producer"
    max_bytes = int(values.get("max.message.bytes") or _BATCH_BYTES)
    return {
        "compression.type": _AS_SENT.get(compression, compression),
        "batch.size": max(1, min(_BATCH_BYTES, max_bytes - _BATCH_OVERHEAD)),
    }
