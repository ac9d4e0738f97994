"""Create, change and delete mirrors: ledger first, copiers fenced.

That mirroring is over is decided first (no copier that comes from then on copies), and is only shown once all who came
before are fenced: in between a mirror is PENDING_STOPPED, and whoever asks again goes on there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import LeaseError, ReconcilerError, RetryableError
from reconciler.providers.kafka.client import UNAUTHORIZED
from reconciler.providers.kafka.faults import error_of_code
from reconciler.providers.kafka.ledger import (
    MAP,
    PROGRESS,
    STATES,
    TRANSACTION_MS,
    WAIT_S,
    Changes,
    Entries,
    Key,
    copier_of,
    mirror_key,
    writer_of,
)
from reconciler.providers.kafka.links.link_states import (
    CREATING,
    PINNED,
    KeptMirror,
    States,
    link_changes,
    mirror_changes,
    states_of,
    taken_configs,
)
from reconciler.providers.kafka.mount_ledger import SEALED, seal_key
from reconciler.providers.kafka.offsets import bounds_of
from reconciler.providers.kafka.translate import own_values
from reconciler.providers.models import differs
from reconciler.resources.mirrors import (
    ACTIVE,
    FAILOVER,
    LinkEntry,
    MirrorEntry,
    Operation,
    SourceTopic,
    TransitionRequest,
    advanced,
    asked_for,
    check_deletable,
    check_mirrored,
    check_own,
    check_unused,
    is_done,
    synced_configs,
)
from reconciler.runtime.retry import go_on, pause

if TYPE_CHECKING:
    from reconciler.lifecycles import MirrorStatus
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.links.link_site import Site
    from reconciler.providers.kafka.translate import TopicSeen


# Shutting copiers out: whoever holds one of these transactional ids commits nothing any more.


_MOVED: Final = frozenset({14, 15, 16})
"""The coordinator loads, or is another broker by now."""
_AGAIN: Final = _MOVED | {51}
"""The same, or it still ends a transaction of the one that is fenced."""
_PAUSE_S: Final = 0.05


def fence(client: KafkaClient, transactional_ids: Iterable[str]) -> None:
    """Fence producers and abort what they have open; when it returns, nothing of theirs is in doubt.

    Raises:
        RetryableError: A coordinator does not answer.
        NotAuthorizedError: The principal may not write with such ids.
    """
    left = sorted(transactional_ids)
    until = monotonic() + WAIT_S
    while left:
        answers = client.asked("fencing copiers", _initialised, client, left)
        left = [name for name, code in answers.items() if code in _AGAIN]
        for name, code in answers.items():
            if code and code not in _AGAIN:
                raise error_of_code(code, "", what=f"transactional id {name}")
        if left and monotonic() > until:
            message = f"{len(left)} copiers of cluster {client.name} could not be fenced, such as {left[0]}"
            raise RetryableError(message, hint="Its transaction coordinator does not answer: try again.")
        if left:
            pause(_PAUSE_S)


def _initialised(client: KafkaClient, transactional_ids: list[str]) -> dict[str, int]:
    """Ask the coordinator of each id for a new epoch of its producer, as a producer that begins does."""
    from kafka.protocol.metadata import CoordinatorType  # noqa: PLC0415 - only who changes links pays
    from kafka.protocol.producer.transaction import InitProducerIdRequest  # noqa: PLC0415 - as above

    admin: Any = client.admin
    connections = admin._manager  # noqa: SLF001 - the library has no method for it

    async def asked() -> dict[str, int]:
        found = {}
        coordinators = await admin._find_coordinator_ids(transactional_ids, key_type=CoordinatorType.TRANSACTION)  # noqa: SLF001
        for name, node in coordinators.items():
            request = InitProducerIdRequest(
                transactional_id=name, transaction_timeout_ms=TRANSACTION_MS, producer_id=-1, producer_epoch=-1
            )
            found[name] = (await connections.send(request, node_id=node)).error_code
            if found[name] in _MOVED:  # The library keeps a coordinator for ever, also when it moves.
                connections.cluster._coordinators.pop((CoordinatorType.TRANSACTION, name), None)  # noqa: SLF001
        return found

    return dict(connections.run(asked))


@dataclass(frozen=True)
class LinkChanges:
    """Changes one destination's links and mirrors."""

    site: Site
    may_go_on: Callable[[], None] = go_on
    """Asked before every write; may raise, and the next process goes on."""

    def ask(self, full_names: Mapping[str, str], verb: str, operation: str = "") -> dict[str, str | ReconcilerError]:
        """Ask a verb of mirrors, by full name with their links; return the id of each topic, or why it is not legal.

        One of which it was asked before, and the answer was lost, is as if asked now.
        """
        topics = self._topics(full_names)
        asked = TransitionRequest(self.site.now_ms(), operation)

        def decide(name: str, kept: KeptMirror, states: States) -> KeptMirror:
            if verb == FAILOVER and kept.opening is not None:
                return kept
            return self._after(kept, asked_for(name, kept.entry, states.found(kept), verb, asked), verb, operation)

        return self._decided(full_names, topics, decide)

    def ask_once(self, full_names: Mapping[str, str], verb: str) -> dict[str, str | ReconcilerError]:
        """Ask the same of mirrors of which it may have been asked already."""
        topics = self._topics(full_names)
        asked = TransitionRequest(self.site.now_ms())

        def decide(name: str, kept: KeptMirror, states: States) -> KeptMirror:
            if is_done(kept.entry, verb):
                return kept
            return self._after(kept, asked_for(name, kept.entry, states.found(kept), verb, asked), verb, "")

        return self._decided(full_names, topics, decide)

    def advance(self, full_name: str, link: str, to: MirrorStatus, asked: TransitionRequest) -> None:
        """Let a mirror go to the next state of its operation; one that mirrors again is unsealed before.

        Raises:
            UserError: The operation is not that one any more, or the table has no such move.
        """
        operation = asked.operation

        def decide(name: str, kept: KeptMirror, _states: States) -> KeptMirror:
            if kept.opening is not None and kept.opening.id == operation:
                return kept
            return self._after(kept, advanced(name, kept.entry, to, asked), "", operation)

        if to == ACTIVE:
            self._unseal({mirror_key(self.site.naming.physical(full_name))})
        names = {full_name: link}
        (found,) = self._decided(names, self._topics(names), decide).values()
        if isinstance(found, ReconcilerError):
            raise found

    def change(self, full_name: str, link: str, of: Callable[[MirrorEntry], MirrorEntry]) -> None:
        """Change what is noted of a mirror, and nothing that copiers must know.

        Raises:
            UserError: It is none.
        """
        topic, seen = self.site.topic(full_name)

        def decide(entries: Entries) -> Changes:
            kept = states_of(entries).mirror(topic, full_name, None if seen is None else seen.id)
            after = replace(kept, entry=of(kept.entry))
            return {} if after == kept else mirror_changes(topic, after)

        self.may_go_on()
        self.site.ledger.change(writer_of(link), decide)

    def change_link(self, name: str, of: Callable[[LinkEntry], LinkEntry]) -> LinkEntry:
        """Change what is kept of a link, and return it.

        Raises:
            UserError: There is none.
        """

        def decide(entries: Entries) -> Changes:
            link = states_of(entries).link(name)
            after = of(link)
            return {} if after == link else link_changes(name, after)

        self.may_go_on()
        return states_of(self.site.ledger.change(writer_of(name), decide)).links[name]

    def _after(self, kept: KeptMirror, entry: MirrorEntry, verb: str, operation: str) -> KeptMirror:
        if not entry.is_stopped or kept.entry.is_stopped:
            return replace(kept, entry=entry)
        by_hand = Operation("", FAILOVER)  # Nobody drives it: it is asked for again where it was broken off.
        ended = by_hand if verb == FAILOVER else kept.entry.operation or Operation(operation, verb)
        return replace(kept, entry=entry, opening=ended)

    def _topics(self, full_names: Iterable[str]) -> dict[str, TopicSeen]:
        return self.site.seen([self.site.naming.physical(name) for name in full_names])

    def _decided(
        self,
        full_names: Mapping[str, str],
        topics: Mapping[str, TopicSeen],
        decide: Callable[[str, KeptMirror, States], KeptMirror],
    ) -> dict[str, str | ReconcilerError]:
        """Decide for mirrors, those of one link at once, then shut out their copiers, and open those that ended.

        Where that fails for one link the others are gone on with.
        """
        found: dict[str, str | ReconcilerError] = {}
        for link in sorted(set(full_names.values())):
            names = [name for name, of in full_names.items() if of == link]
            try:
                self._shut(link, self._write(link, names, topics, decide, found), topics)
            except LeaseError:
                raise
            except ReconcilerError as error:
                found |= {name: error for name in names if not isinstance(found.get(name), ReconcilerError)}
        return found

    def _shut(self, link: str, shut: Mapping[str, KeptMirror], before: Mapping[str, TopicSeen]) -> None:
        """Shut out the copiers of mirrors of which it is written, and open those whose mirroring is over."""
        self.may_go_on()
        # After it was written: who copies to a partition that came meanwhile may have looked before. The broker that
        # answers now may lag behind the one that was asked then, so what that one knew counts as well.
        now = self.site.seen(shut)
        fence(
            self.site.client,
            [
                copier_of(kept.entry.link_id, topic, number)
                for topic, kept in shut.items()
                for number in range(max(len(seen[topic].replicas) for seen in (before, now) if topic in seen))
            ],
        )
        self._open(link, [topic for topic, kept in shut.items() if kept.opening is not None])

    def _write(
        self,
        link: str,
        names: Iterable[str],
        topics: Mapping[str, TopicSeen],
        decide: Callable[[str, KeptMirror, States], KeptMirror],
        found: dict[str, str | ReconcilerError],
    ) -> dict[str, KeptMirror]:
        """Write what is decided of mirrors of one link, and return them, by the names their broker gives them."""
        shut: dict[str, KeptMirror] = {}

        def changes(entries: Entries) -> Changes:
            states = states_of(entries)
            written: dict[str, Changes] = {}
            shut.clear()
            for name in names:
                topic = self.site.naming.physical(name)
                seen = topics.get(topic)
                try:
                    kept = states.mirror(topic, name, None if seen is None else seen.id)
                    after = decide(name, kept, states)
                except ReconcilerError as error:
                    found[name] = error
                    continue
                found[name], shut[topic] = kept.topic_id or "", after
                if after != kept:
                    written[topic] = mirror_changes(topic, after)
            return {key: value for each in written.values() for key, value in each.items()}

        self.may_go_on()
        self.site.ledger.change(writer_of(link), changes)
        return shut

    def _open(self, link: str, topics: Iterable[str]) -> None:
        """Tell that mirrors are ordinary topics: no process copies to them any more."""
        opened = {mirror_key(topic) for topic in topics}
        if not opened:
            return

        def decide(entries: Entries) -> Changes:
            mirrors = states_of(entries).mirrors
            still = {topic: kept for topic, kept in mirrors.items() if mirror_key(topic) in opened and kept.opening}
            after = {topic: replace(kept, opening=None, denied=()) for topic, kept in still.items()}
            return {mirror_key(topic): kept.document() for topic, kept in after.items()}

        self._unseal(opened)
        self.may_go_on()
        _lift(self.site, lambda topic, _kept: mirror_key(topic) in opened)
        self.site.ledger.change(writer_of(link), decide)

    def _unseal(self, opened: Collection[Key]) -> None:
        """Let producers in where a reversal has shut them out: before it is told, or who asks again goes on here."""
        mirrors = self.site.states().mirrors
        shut = self.site.ledger.read(SEALED)
        for _, topic in sorted(opened):
            kept = mirrors.get(str(topic))
            if kept is not None and kept.topic_id is not None and seal_key(kept.topic_id) in shut:
                from reconciler.providers.kafka.seal import Seals  # noqa: PLC0415 - only who swaps roles pays

                self.may_go_on()
                Seals(self.site.client, self.site.ledger).take_off(kept.topic_id)


# Mirrors made and deleted: the ledger says first what is to be, so that a topic can be told to be ours.


_ALL: Final = (*STATES, PROGRESS, MAP)


@dataclass(frozen=True, slots=True)
class New:
    """What is asked of a new mirror: its source's full name and shape, and configs of its own."""

    source: str
    of: SourceTopic
    configs: Mapping[str, str]
    is_automatic: bool = False
    denied: tuple[str, ...] = ()
    """Principals that are kept from writing to it from the beginning."""


@dataclass(frozen=True)
class MirrorCreation:
    """Makes and deletes mirrors of one destination."""

    site: Site
    may_go_on: Callable[[], None] = go_on

    def make(self, link: str, wanted: Mapping[str, New]) -> dict[str, str | ReconcilerError]:
        """Make mirrors of one link, by full name, and return the id of each topic, or why there is none.

        The ledger has each before its topic, which is known to be ours by that; then it gets its id, and is a mirror.
        One that is there is left alone.

        Raises:
            UserError: There is no such link.
        """
        found: dict[str, str | ReconcilerError] = {}
        topics = self.site.client.topics([self.site.naming.physical(name) for name in wanted])
        there = {topic: seen for topic, seen in topics.items() if not seen.error}
        hidden: dict[str, str | ReconcilerError] = {
            name: self.site.client.hidden(topic)
            for name in wanted
            if (topic := self.site.naming.physical(name)) in topics and topics[topic].error == UNAUTHORIZED
        }
        absent = {name: self.site.naming.physical(name) for name in wanted if name not in hidden}
        unshown = self._unshown(set(absent.values()) - there.keys())
        hidden |= {name: unshown[topic] for name, topic in absent.items() if topic in unshown}
        wanted = {name: new for name, new in wanted.items() if name not in hidden}
        states = self._announced(link, wanted, there, found)
        found_link = states.link(link)
        here = self.site.capabilities()
        shapes = {
            name: (new.of.partitions, self._configs(new, taken_configs(new.of, found_link, here, new.configs)))
            for name, new in wanted.items()
            if name not in found
        }
        for name in [name for name in shapes if self.site.naming.physical(name) in there]:
            try:
                self._reshape(name, there[self.site.naming.physical(name)], shapes[name])
            except ReconcilerError as error:
                found[name] = error
                del shapes[name]
        from reconciler.providers.kafka.links.link_groups import deny  # noqa: PLC0415 - plans need none of it

        deny(self.site, link, {self.site.naming.physical(name): wanted[name].denied for name in shapes})
        made = self.site.make(shapes, self.may_go_on)
        ids = {name: each for name, each in made.items() if isinstance(each, str)}
        self._identified(link, ids)
        return {**found, **made, **hidden}

    def delete(self, link: str, full_name: str, topic_id: str | None) -> None:
        """Delete a mirror and all that is kept of it; one that is gone is gone.

        Raises:
            UserError: It is on its way to another state.
            BlockedError: Its link would make it again.
            StalePlanError: It was made anew since it was looked at.
            RetryableError: The broker that answers does not show it yet.
        """
        topic, seen = self.site.topic(full_name)
        if seen is not None:
            states = self.site.states()
            kept = states.mirror(topic, full_name, seen.id)
            check_deletable(full_name, kept.entry, states.found(kept))
            deleted = self.site.remove({full_name: topic_id or seen.id}, self.may_go_on)[full_name]
            if isinstance(deleted, ReconcilerError):
                raise deleted
        elif unshown := self._unshown({topic}):
            raise unshown[topic]
        self.may_go_on()
        _lift(self.site, lambda name, _kept: name == topic)
        self.site.ledger.change(writer_of(link), lambda entries: _forgotten(entries, {topic}), *_ALL)

    def delete_link(self, name: str) -> None:
        """Remove a link, and what is kept of its stopped mirrors: they are ordinary topics from then on (F-C-091).

        Raises:
            BlockedError: It has mirrors that are not stopped.
            NotAuthorizedError: It has one that may not be described: whether its topic is there brokers do not say.
        """
        ids = {topic: seen.id for topic, seen in self.site.seen().items()}
        silent = [topic for topic, kept in self.site.states().of(name) if kept.follows and topic not in ids]
        for topic, seen in self.site.client.topics(silent).items():
            if seen.error == UNAUTHORIZED:
                raise self.site.client.hidden(topic)
            if not seen.error:  # The broker that listed topics lags behind.
                ids[topic] = seen.id

        def decide(entries: Entries) -> Changes:
            states = states_of(entries)
            if name not in states.links:
                return {}
            live = states.live(ids)
            check_unused(name, ((kept.name, kept.entry) for _, kept in live.of(name)))
            gone = {topic for topic, _ in states.of(name)}
            return {**link_changes(name, None), **_forgotten(entries, gone)}

        self.may_go_on()
        # Of one that was announced no id is known, and its topic may never have been made.
        _lift(
            self.site, lambda topic, kept: kept.link == name and not (kept.topic_id and kept.topic_id == ids.get(topic))
        )
        self.site.ledger.change(writer_of(name), decide, *_ALL)

    def _unshown(self, absent: Collection[str]) -> Mapping[str, RetryableError]:
        """Return why nothing may be forgotten of mirrors that no broker showed: their topics are there."""
        kept = self.site.states().mirrors if absent else {}
        return self.site.unshown([topic for topic in absent if topic in kept and kept[topic].topic_id is not None])

    def _announced(
        self,
        link: str,
        wanted: Mapping[str, New],
        there: Mapping[str, TopicSeen],
        found: dict[str, str | ReconcilerError],
    ) -> States:
        """Write down what is to be made, and forget what was kept of topics that had these names before."""

        def decide(entries: Entries) -> Changes:
            states = states_of(entries)
            found.clear()
            changes: dict[tuple[str | int, ...], object] = {}
            for name, new in wanted.items():
                topic = self.site.naming.physical(name)
                try:
                    done = self._checked(link, name, new, states, there.get(topic))
                except ReconcilerError as error:
                    found[name] = error
                    continue
                if done is not None:
                    found[name] = done
                elif (before := states.mirrors.get(topic)) is None or before.entry.state != CREATING:
                    made = self._new(link, name, new, states)
                    if before is not None:  # What kept writers out of the topic of that name is taken back, or used.
                        made = replace(made, denied=before.denied)
                    changes |= {**_forgotten(entries, {topic}), **mirror_changes(topic, made)}
            return changes  # type: ignore[return-value]

        self.may_go_on()
        return states_of(self.site.ledger.change(writer_of(link), decide, *_ALL))

    def _checked(self, link: str, name: str, new: New, states: States, seen: TopicSeen | None) -> str | None:
        """Return the id of a mirror that is there already; `None`: it is to be made.

        Raises:
            UserError: The name is taken, or is not what the link makes of its source's, or a config is synced.
        """
        found = states.link(link)
        check_mirrored(name, new.source, (link, found))
        check_own(name, synced_configs(found), new.configs)
        kept = states.mirrors.get(self.site.naming.physical(name))
        if seen is None:
            return None
        is_ours = kept is not None and (kept.entry.link_id, kept.entry.source) == (found.id, new.source)
        if kept is not None and is_ours and kept.topic_id == seen.id:
            return seen.id
        if kept is not None and is_ours and kept.entry.state == CREATING and self._is_empty(seen):
            return None  # It was made, and the answer was lost.
        raise differs(name)

    def _new(self, link: str, name: str, new: New, states: States) -> KeptMirror:
        entry = MirrorEntry(
            states.link(link).id,
            new.source,
            new.of.incarnation,
            state=CREATING,
            since_ms=self.site.now_ms(),
            is_automatic=new.is_automatic,
        )
        return KeptMirror(name, link, None, entry)

    def _identified(self, link: str, ids: Mapping[str, str]) -> None:
        topics = {self.site.naming.physical(name): topic_id for name, topic_id in ids.items()}

        def decide(entries: Entries) -> Changes:
            mirrors = states_of(entries).mirrors
            changes: dict[tuple[str | int, ...], object] = {}
            for topic, topic_id in topics.items():
                kept = mirrors.get(topic)
                if kept is not None and kept.entry.state == CREATING:
                    changes |= mirror_changes(
                        topic, replace(kept, topic_id=topic_id, entry=replace(kept.entry, state=ACTIVE))
                    )
            return changes  # type: ignore[return-value]

        self.site.ledger.change(writer_of(link), decide)

    def _reshape(self, name: str, seen: TopicSeen, shape: tuple[int, Mapping[str, str]]) -> None:
        """Bring a topic whose maker was killed to the shape its mirror has now: its source may have changed since.

        What every mirror is made with tells it from a topic that somebody else made under the name.
        """
        ((_, configs),) = self.site.client.configs([seen.name])
        own = {} if isinstance(configs, int) else own_values(configs)
        made_with = {key: value for key, value in PINNED.items() if shape[1].get(key) == value}
        if made_with and own.items() >= made_with.items():
            wanted = shape[0], {**dict.fromkeys(own), **shape[1]}
            self.site.shape(name, (len(seen.replicas), own), wanted, self.may_go_on)

    def _is_empty(self, seen: TopicSeen) -> bool:
        places = [(seen.name, number) for number in range(len(seen.replicas))]
        return all(at.end == 0 for at in bounds_of(self.site.client, places).values())

    @staticmethod
    def _configs(new: New, taken: Mapping[str, str | None]) -> dict[str, str]:
        return {**new.configs, **{key: value for key, value in taken.items() if value is not None}}


def _lift(site: Site, is_meant: Callable[[str, KeptMirror], bool]) -> None:
    """Take back what keeps writers out of some mirrors."""
    denied = {topic: kept for topic, kept in site.states().mirrors.items() if kept.denied and is_meant(topic, kept)}
    if denied:
        from reconciler.providers.kafka.links.link_groups import lift  # noqa: PLC0415 - plans need none of it

        lift(site, denied)


def _forgotten(entries: Entries, topics: Iterable[str]) -> Changes:
    """Return the removal of all that is kept of mirrors."""
    gone = set(topics)
    return {key: None for key in entries if key[0] in {*_ALL} - {"link"} and key[1] in gone}
