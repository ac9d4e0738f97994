"""Create, change and delete mirrors.

The end of mirroring is recorded in the ledger first, so no copier starts. Until running copiers are fenced, the mirror
is PENDING_STOPPED. A repeated request continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import LeaseError, ReconcilerError, RetryableError
from reconciler.providers.brokers.client import UNAUTHORIZED
from reconciler.providers.brokers.faults import translate_code
from reconciler.providers.brokers.ledger import (
    MAP,
    PROGRESS,
    STATES,
    TRANSACTION_MS,
    WAIT_S,
    Changes,
    Entries,
    Key,
    build_copier_id,
    build_writer_id,
    mirror_key,
)
from reconciler.providers.brokers.links.link_states import (
    CREATING,
    LinkStates,
    RecordedMirror,
    build_link_changes,
    build_mirror_changes,
    is_pinned,
    parse_states,
    resolve_synced_configs,
)
from reconciler.providers.brokers.mount_ledger import SEALED, seal_key
from reconciler.providers.brokers.offsets import read_bounds
from reconciler.providers.brokers.translate import select_own_configs
from reconciler.providers.models import already_exists_error
from reconciler.resources.mirrors import (
    ACTIVE,
    FAILOVER,
    LinkEntry,
    MirrorEntry,
    Operation,
    SourceTopic,
    TransitionRequest,
    advance_mirror,
    apply_verb_request,
    check_deletable,
    check_mirror_name,
    check_own_configs,
    check_unused,
    is_verb_done,
    list_synced_configs,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import pause, skip_check

if TYPE_CHECKING:
    from reconciler.lifecycles import MirrorStatus
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.brokers.links.link_site import LinkSite
    from reconciler.providers.brokers.translate import TopicMetadata

# ruff: noqa: PLC0415 - only a change needs these


_MOVED: Final = frozenset({14, 15, 16})
"""Error codes of a coordinator that is loading or has moved."""
_RETRIED: Final = _MOVED | {51}
"""Error codes to retry; 51 means that the fenced producer's transaction is still ending."""
_PAUSE_S: Final = 0.05


def fence_producers(client: KafkaClient, transactional_ids: Iterable[str]) -> None:
    """Fence producers by taking over their transactional ids, which aborts open transactions."""
    left = sorted(transactional_ids)
    until = monotonic() + WAIT_S
    while left:
        answers = client.call_admin("fencing copiers", _init_producers, client, left)
        left = [name for name, code in answers.items() if code in _RETRIED]
        for name, code in answers.items():
            if code and code not in _RETRIED:
                raise translate_code(code, "", what=f"transactional id {name}")
        if left and monotonic() > until:
            message = f"{len(left)} copiers of cluster {client.name} could not be fenced, such as {left[0]}"
            raise RetryableError(message, hint="Its transaction coordinator does not answer: try again.")
        if left:
            pause(_PAUSE_S)


def _init_producers(client: KafkaClient, transactional_ids: list[str]) -> dict[str, int]:
    from kafka.protocol.metadata import CoordinatorType
    from kafka.protocol.producer.transaction import InitProducerIdRequest

    admin: Any = client.admin
    connections = admin._manager  # noqa: SLF001 - the library has no method for it

    async def send() -> dict[str, int]:
        codes = {}
        coordinators = await admin._find_coordinator_ids(transactional_ids, key_type=CoordinatorType.TRANSACTION)  # noqa: SLF001
        for name, node in coordinators.items():
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=TRANSACTION_MS, producer_id=-1, producer_epoch=-1
            )
            codes[name] = (await connections.send(request, node_id=node)).error_code
            if codes[name] in _MOVED:  # The library caches moved coordinators.
                connections.cluster._coordinators.pop((CoordinatorType.TRANSACTION, name), None)  # noqa: SLF001
        return codes

    return dict(connections.run(send))


@dataclass(frozen=True)
class LinkChanges:
    """Changes of one destination's links and mirrors."""

    site: LinkSite
    may_go_on: Callable[[], None] = skip_check

    def request_verb(
        self, full_names: Mapping[str, str], verb: str, operation: str = ""
    ) -> dict[str, str | ReconcilerError]:
        """Request a verb for mirrors; return topic ids or errors. Idempotent.

        `full_names` maps mirrors to links.
        """
        topics = self._read_topics(full_names)
        request = TransitionRequest(self.site.now_ms(), operation)

        def decide(name: str, mirror: RecordedMirror, states: LinkStates) -> RecordedMirror:
            if verb == FAILOVER and mirror.opening is not None:
                return mirror
            return self._apply_entry(
                mirror, apply_verb_request(name, mirror.entry, states.find_link(mirror), verb, request), verb, operation
            )

        return self._carry_out_decisions(full_names, topics, decide)

    def request_verb_once(self, full_names: Mapping[str, str], verb: str) -> dict[str, str | ReconcilerError]:
        """As `request_verb`, but mirrors that have carried out the verb do not change."""
        topics = self._read_topics(full_names)
        request = TransitionRequest(self.site.now_ms())

        def decide(name: str, mirror: RecordedMirror, states: LinkStates) -> RecordedMirror:
            if is_verb_done(mirror.entry, verb):
                return mirror
            return self._apply_entry(
                mirror, apply_verb_request(name, mirror.entry, states.find_link(mirror), verb, request), verb, ""
            )

        return self._carry_out_decisions(full_names, topics, decide)

    def move_to_status(self, full_name: str, link: str, to: MirrorStatus, request: TransitionRequest) -> None:
        """Move a mirror to the next state of its operation. Unseal the topic before it becomes ACTIVE."""
        operation = request.operation

        def decide(name: str, mirror: RecordedMirror, _states: LinkStates) -> RecordedMirror:
            if mirror.opening is not None and mirror.opening.id == operation:
                return mirror
            return self._apply_entry(mirror, advance_mirror(name, mirror.entry, to, request), "", operation)

        if to == ACTIVE:
            self._unseal_mirrors({mirror_key(self.site.naming.to_physical(full_name))})
        names = {full_name: link}
        (result,) = self._carry_out_decisions(names, self._read_topics(names), decide).values()
        if isinstance(result, ReconcilerError):
            raise result

    def change_mirror(self, full_name: str, link: str, of: Callable[[MirrorEntry], MirrorEntry]) -> None:
        """Replace a mirror's entry by the result of `of`, without fencing copiers."""
        topic, seen = self.site.read_topic(full_name)

        def decide(entries: Entries) -> Changes:
            mirror = parse_states(entries).require_mirror(topic, full_name, None if seen is None else seen.id)
            after = replace(mirror, entry=of(mirror.entry))
            return {} if after == mirror else build_mirror_changes(topic, after)

        self.may_go_on()
        self.site.ledger.change(build_writer_id(link), decide)

    def change_link(self, name: str, of: Callable[[LinkEntry], LinkEntry]) -> LinkEntry:
        """Replace a link's entry with the result of `of`, and return it."""

        def decide(entries: Entries) -> Changes:
            link = parse_states(entries).require_link(name)
            after = of(link)
            return {} if after == link else build_link_changes(name, after)

        self.may_go_on()
        return parse_states(self.site.ledger.change(build_writer_id(name), decide)).links[name]

    def _apply_entry(self, mirror: RecordedMirror, entry: MirrorEntry, verb: str, operation: str) -> RecordedMirror:
        if not entry.is_stopped or mirror.entry.is_stopped:
            return replace(mirror, entry=entry)
        # A manual failover has no operation id: no process continues it, but the user repeats it.
        by_hand = Operation("", FAILOVER)
        ended = by_hand if verb == FAILOVER else mirror.entry.operation or Operation(operation, verb)
        return replace(mirror, entry=entry, opening=ended)

    def _read_topics(self, full_names: Iterable[str]) -> dict[str, TopicMetadata]:
        return self.site.read_topics([self.site.naming.to_physical(name) for name in full_names])

    def _carry_out_decisions(
        self,
        full_names: Mapping[str, str],
        topics: Mapping[str, TopicMetadata],
        decide: Callable[[str, RecordedMirror, LinkStates], RecordedMirror],
    ) -> dict[str, str | ReconcilerError]:
        results: dict[str, str | ReconcilerError] = {}
        for link in sorted(set(full_names.values())):
            names = [name for name, of in full_names.items() if of == link]
            try:
                self._fence_and_open(link, self._write_decisions(link, names, topics, decide, results), topics)
            except LeaseError:
                raise
            except ReconcilerError as error:
                results |= {name: error for name in names if not isinstance(results.get(name), ReconcilerError)}
        return results

    def _fence_and_open(
        self, link: str, shut: Mapping[str, RecordedMirror], before: Mapping[str, TopicMetadata]
    ) -> None:
        self.may_go_on()
        # Partitions added before the ledger was written may have copiers, so topics are read again. The larger count is
        # valid, because a broker may report an old one.
        now = self.site.read_topics(shut)
        fence_producers(
            self.site.client,
            [
                build_copier_id(mirror.entry.link_id, topic, number)
                for topic, mirror in shut.items()
                for number in range(max(len(seen[topic].replicas) for seen in (before, now) if topic in seen))
            ],
        )
        self._open_topics(link, [topic for topic, mirror in shut.items() if mirror.opening is not None])

    def _write_decisions(
        self,
        link: str,
        names: Iterable[str],
        topics: Mapping[str, TopicMetadata],
        decide: Callable[[str, RecordedMirror, LinkStates], RecordedMirror],
        results: dict[str, str | ReconcilerError],
    ) -> dict[str, RecordedMirror]:
        shut: dict[str, RecordedMirror] = {}

        def changes(entries: Entries) -> Changes:
            states = parse_states(entries)
            written: dict[str, Changes] = {}
            shut.clear()
            for name in names:
                topic = self.site.naming.to_physical(name)
                seen = topics.get(topic)
                try:
                    mirror = states.require_mirror(topic, name, None if seen is None else seen.id)
                    after = decide(name, mirror, states)
                except ReconcilerError as error:
                    results[name] = error
                    continue
                results[name], shut[topic] = mirror.topic_id or "", after
                if after != mirror:
                    written[topic] = build_mirror_changes(topic, after)
            return {key: value for of_topic in written.values() for key, value in of_topic.items()}

        self.may_go_on()
        self.site.ledger.change(build_writer_id(link), changes)
        return shut

    def _open_topics(self, link: str, topics: Iterable[str]) -> None:
        opened = {mirror_key(topic) for topic in topics}
        if not opened:
            return

        def decide(entries: Entries) -> Changes:
            mirrors = parse_states(entries).mirrors
            still = {
                topic: mirror for topic, mirror in mirrors.items() if mirror_key(topic) in opened and mirror.opening
            }
            after = {topic: replace(mirror, opening=None, denied=()) for topic, mirror in still.items()}
            return {mirror_key(topic): mirror.to_document() for topic, mirror in after.items()}

        self._unseal_mirrors(opened)
        self.may_go_on()
        _remove_denials(self.site, lambda topic, _mirror: mirror_key(topic) in opened)
        self.site.ledger.change(build_writer_id(link), decide)

    def _unseal_mirrors(self, opened: Collection[Key]) -> None:
        mirrors = self.site.read_states().mirrors
        shut = self.site.ledger.read(SEALED)
        for _, topic in sorted(opened):
            mirror = mirrors.get(str(topic))
            if mirror is not None and mirror.topic_id is not None and seal_key(mirror.topic_id) in shut:
                from reconciler.providers.brokers.seal import Seals

                self.may_go_on()
                Seals(self.site.client, self.site.ledger).remove_seal(mirror.topic_id)


# A mirror is recorded before its topic is created, so a new topic's link is known.


_ALL: Final = (*STATES, PROGRESS, MAP)


@dataclass(frozen=True, slots=True)
class NewMirror:
    """Mirror to create: its source's name and shape, and its own configs."""

    source: str
    shape: SourceTopic
    configs: Mapping[str, str]
    is_automatic: bool = False
    denied: tuple[str, ...] = ()


@dataclass(frozen=True)
class MirrorCreation:
    """Creation and deletion of mirrors on one destination."""

    site: LinkSite
    may_go_on: Callable[[], None] = skip_check

    def create_mirrors(self, link: str, wanted: Mapping[str, NewMirror]) -> dict[str, str | ReconcilerError]:
        """Create mirrors; return topic ids or errors. Existing mirrors do not change."""
        results: dict[str, str | ReconcilerError] = {}
        topics = self.site.client.read_topics([self.site.naming.to_physical(name) for name in wanted])
        existing = {topic: seen for topic, seen in topics.items() if not seen.error}
        hidden: dict[str, str | ReconcilerError] = {
            name: self.site.client.build_hidden_error(topic)
            for name in wanted
            if (topic := self.site.naming.to_physical(name)) in topics and topics[topic].error == UNAUTHORIZED
        }
        absent = {name: self.site.naming.to_physical(name) for name in wanted if name not in hidden}
        unshown = self._find_uncertain_topics(set(absent.values()) - existing.keys())
        hidden |= {name: unshown[topic] for name, topic in absent.items() if topic in unshown}
        wanted = {name: new for name, new in wanted.items() if name not in hidden}
        states = self._record_new_mirrors(link, wanted, existing, results)
        link_entry = states.require_link(link)
        capabilities = self.site.capabilities()
        shapes = {
            name: (
                new.shape.partitions,
                self._merge_configs(new, resolve_synced_configs(new.shape, link_entry, capabilities, new.configs)),
            )
            for name, new in wanted.items()
            if name not in results
        }
        for name in [name for name in shapes if self.site.naming.to_physical(name) in existing]:
            try:
                self._update_to_source(name, existing[self.site.naming.to_physical(name)], shapes[name])
            except ReconcilerError as error:
                results[name] = error
                del shapes[name]
        from reconciler.providers.brokers.links.link_groups import deny_writes

        deny_writes(self.site, link, {self.site.naming.to_physical(name): wanted[name].denied for name in shapes})
        results_by_name = self.site.create_topics(shapes, self.may_go_on)
        ids = {name: topic_id for name, topic_id in results_by_name.items() if isinstance(topic_id, str)}
        self._record_ids(link, ids)
        return {**results, **results_by_name, **hidden}

    def delete_mirror(self, link: str, full_name: str, topic_id: str | None) -> None:
        """Delete a mirror and its entries, if they exist."""
        topic, seen = self.site.read_topic(full_name)
        if seen is not None:
            states = self.site.read_states()
            mirror = states.require_mirror(topic, full_name, seen.id)
            check_deletable(full_name, mirror.entry, states.find_link(mirror))
            deleted = self.site.delete_topics({full_name: topic_id or seen.id}, self.may_go_on)[full_name]
            if isinstance(deleted, ReconcilerError):
                raise deleted
        elif unshown := self._find_uncertain_topics({topic}):
            raise unshown[topic]
        self.may_go_on()
        _remove_denials(self.site, lambda name, _mirror: name == topic)
        self.site.ledger.change(build_writer_id(link), lambda entries: _build_removals(entries, {topic}), *_ALL)

    def delete_link(self, name: str) -> None:
        """Remove a link and its stopped mirrors' entries. Their topics become ordinary ones (F-C-091)."""
        ids = {topic: seen.id for topic, seen in self.site.read_topics().items()}
        silent = [
            topic
            for topic, mirror in self.site.read_states().list_mirrors(name)
            if mirror.is_mirroring and topic not in ids
        ]
        for topic, seen in self.site.client.read_topics(silent).items():
            if seen.error == UNAUTHORIZED:
                raise self.site.client.build_hidden_error(topic)
            if not seen.error:  # The broker that listed the topics did not show this one yet.
                ids[topic] = seen.id

        def decide(entries: Entries) -> Changes:
            states = parse_states(entries)
            if name not in states.links:
                return {}
            live = states.select_live(ids)
            check_unused(name, ((mirror.name, mirror.entry) for _, mirror in live.list_mirrors(name)))
            gone = {topic for topic, _ in states.list_mirrors(name)}
            return {**build_link_changes(name, None), **_build_removals(entries, gone)}

        self.may_go_on()
        # A mirror in creation has no topic id, and its topic may not exist.
        _remove_denials(
            self.site,
            lambda topic, mirror: mirror.link == name and not (mirror.topic_id and mirror.topic_id == ids.get(topic)),
        )
        self.site.ledger.change(build_writer_id(name), decide, *_ALL)

    def _find_uncertain_topics(self, absent: Collection[str]) -> Mapping[str, RetryableError]:
        mirrors = self.site.read_states().mirrors if absent else {}
        return self.site.find_unshown_topics(
            [topic for topic in absent if topic in mirrors and mirrors[topic].topic_id is not None]
        )

    def _record_new_mirrors(
        self,
        link: str,
        wanted: Mapping[str, NewMirror],
        existing: Mapping[str, TopicMetadata],
        results: dict[str, str | ReconcilerError],
    ) -> LinkStates:

        def decide(entries: Entries) -> Changes:
            states = parse_states(entries)
            results.clear()
            changes: dict[tuple[str | int, ...], object] = {}
            for name, new in wanted.items():
                topic = self.site.naming.to_physical(name)
                try:
                    done = self._find_existing_id(link, name, new, states, existing.get(topic))
                except ReconcilerError as error:
                    results[name] = error
                    continue
                if done is not None:
                    results[name] = done
                elif (before := states.mirrors.get(topic)) is None or before.entry.state != CREATING:
                    made = self._build_recorded_mirror(link, name, new, states)
                    if before is not None:
                        made = replace(made, denied=before.denied)
                    changes |= {**_build_removals(entries, {topic}), **build_mirror_changes(topic, made)}
            return changes  # type: ignore[return-value]

        self.may_go_on()
        return parse_states(self.site.ledger.change(build_writer_id(link), decide, *_ALL))

    def _find_existing_id(
        self, link: str, name: str, new: NewMirror, states: LinkStates, seen: TopicMetadata | None
    ) -> str | None:
        current = states.require_link(link)
        check_mirror_name(name, new.source, (link, current))
        check_own_configs(name, list_synced_configs(current), new.configs)
        mirror = states.mirrors.get(self.site.naming.to_physical(name))
        if seen is None:
            return None
        is_ours = mirror is not None and (mirror.entry.link_id, mirror.entry.source) == (current.id, new.source)
        if mirror is not None and is_ours and mirror.topic_id == seen.id:
            return seen.id
        if mirror is not None and is_ours and mirror.entry.state == CREATING and self._is_empty(seen):
            return None
        raise already_exists_error(name)

    def _build_recorded_mirror(self, link: str, name: str, new: NewMirror, states: LinkStates) -> RecordedMirror:
        entry = MirrorEntry(
            states.require_link(link).id,
            new.source,
            new.shape.incarnation,
            state=CREATING,
            since_ms=self.site.now_ms(),
            is_automatic=new.is_automatic,
        )
        return RecordedMirror(name, link, None, entry)

    def _record_ids(self, link: str, ids: Mapping[str, str]) -> None:
        topics = {self.site.naming.to_physical(name): topic_id for name, topic_id in ids.items()}

        def decide(entries: Entries) -> Changes:
            mirrors = parse_states(entries).mirrors
            changes: dict[tuple[str | int, ...], object] = {}
            for topic, topic_id in topics.items():
                mirror = mirrors.get(topic)
                if mirror is not None and mirror.entry.state == CREATING:
                    changes |= build_mirror_changes(
                        topic, replace(mirror, topic_id=topic_id, entry=replace(mirror.entry, state=ACTIVE))
                    )
            return changes  # type: ignore[return-value]

        self.site.ledger.change(build_writer_id(link), decide)

    def _update_to_source(self, name: str, seen: TopicMetadata, shape: tuple[int, Mapping[str, str]]) -> None:
        """Give a topic that a crashed process created its source's partitions and configs.

        A topic without the pinned configs may be another user's, and does not change.
        """
        ((_, configs),) = self.site.client.read_configs([seen.name])
        own = {} if isinstance(configs, int) else select_own_configs(configs)
        made_with = {key: value for key, value in shape[1].items() if is_pinned(key, value)}
        if made_with and own.items() >= made_with.items():
            wanted = shape[0], {**dict.fromkeys(own), **shape[1]}
            self.site.change_topic(name, (len(seen.replicas), own), wanted, self.may_go_on)

    def _is_empty(self, seen: TopicMetadata) -> bool:
        places = [(seen.name, number) for number in range(len(seen.replicas))]
        return all(at.end == 0 for at in read_bounds(self.site.client, places).values())

    @staticmethod
    def _merge_configs(new: NewMirror, taken: Mapping[str, str | None]) -> dict[str, str]:
        return {**new.configs, **{key: value for key, value in taken.items() if value is not None}}


def _remove_denials(site: LinkSite, is_meant: Callable[[str, RecordedMirror], bool]) -> None:
    denied = {
        topic: mirror
        for topic, mirror in site.read_states().mirrors.items()
        if mirror.denied and is_meant(topic, mirror)
    }
    if denied:
        from reconciler.providers.brokers.links.link_groups import remove_denials

        remove_denials(site, denied)


def _build_removals(entries: Entries, topics: Iterable[str]) -> Changes:
    gone = set(topics)
    return {key: None for key in entries if key[0] in {*_ALL} - {"link"} and key[1] in gone}
