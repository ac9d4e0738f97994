"""Changes of links and mirrors: decided in the ledger, then copiers are shut out, then it is told that they are.

That mirroring is over is decided first (no copier that comes from then on copies), and is only shown once all who came
before are fenced: in between a mirror is PENDING_STOPPED, and whoever asks again goes on there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError
from reconciler.providers.base import go_on
from reconciler.providers.kafka.ledger import copier_of, mirror_key, writer_of
from reconciler.providers.kafka.linking.fencing import fence
from reconciler.providers.kafka.linking.states import link_changes, mirror_changes, states_of
from reconciler.resources.linkentries import MirrorEntry, OperationEntry
from reconciler.resources.mirrorstates import FAILOVER, Asked, advanced, asked_for, is_done

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from reconciler.lifecycles.mirror import MirrorStatus
    from reconciler.providers.kafka.ledger import Changes, Entries
    from reconciler.providers.kafka.linking.site import Site
    from reconciler.providers.kafka.linking.states import Kept, States
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.resources.linkentries import LinkEntry


@dataclass(frozen=True)
class Changing:
    """Changes one destination's links and mirrors."""

    site: Site
    may_go_on: Callable[[], None] = go_on
    """Asked before every write; may raise, and whoever comes next goes on."""

    def ask(self, full_names: Mapping[str, str], verb: str, operation: str = "") -> dict[str, str | ReconcilerError]:
        """Ask a verb of mirrors, by full name with their links; return the id of each topic, or why it is not legal.

        One of which it was asked before, and the answer was lost, is as if asked now.
        """
        topics = self._topics(full_names)
        asked = Asked(self.site.now_ms(), operation)

        def decide(name: str, kept: Kept, states: States) -> Kept:
            if verb == FAILOVER and kept.opening is not None:
                return kept
            return self._after(kept, asked_for(name, kept.entry, states.found(kept), verb, asked), verb, operation)

        return self._decided(full_names, topics, decide)

    def ask_once(self, full_names: Mapping[str, str], verb: str) -> dict[str, str | ReconcilerError]:
        """Ask the same of mirrors of which it may have been asked already."""
        topics = self._topics(full_names)
        asked = Asked(self.site.now_ms())

        def decide(name: str, kept: Kept, states: States) -> Kept:
            if is_done(kept.entry, verb):
                return kept
            return self._after(kept, asked_for(name, kept.entry, states.found(kept), verb, asked), verb, "")

        return self._decided(full_names, topics, decide)

    def advance(self, full_name: str, link: str, to: MirrorStatus, operation: str) -> None:
        """Let a mirror go to the next state of its operation.

        Raises:
            UserError: The operation is not that one any more, or the table has no such move.
        """
        asked = Asked(self.site.now_ms(), operation)

        def decide(name: str, kept: Kept, _states: States) -> Kept:
            if kept.opening is not None and kept.opening.id == operation:
                return kept
            return self._after(kept, advanced(name, kept.entry, to, asked), "", operation)

        names = {full_name: link}
        (found,) = self._decided(names, self._topics(names), decide).values()
        if isinstance(found, ReconcilerError):
            raise found

    def change(self, full_name: str, link: str, of: Callable[[Kept], MirrorEntry]) -> None:
        """Change what is noted of a mirror, and nothing that copiers must know.

        Raises:
            UserError: It is none.
        """
        topic, seen = self.site.topic(full_name)

        def decide(entries: Entries) -> Changes:
            kept = states_of(entries).mirror(topic, full_name, None if seen is None else seen.id)
            after = replace(kept, entry=of(kept))
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

    def _after(self, kept: Kept, entry: MirrorEntry, verb: str, operation: str) -> Kept:
        if not entry.is_stopped or kept.entry.is_stopped:
            return replace(kept, entry=entry)
        by_hand = OperationEntry("", FAILOVER)  # Nobody drives it: it is asked for again where it was broken off.
        ended = by_hand if verb == FAILOVER else kept.entry.operation or OperationEntry(operation, verb)
        return replace(kept, entry=entry, opening=ended)

    def _topics(self, full_names: Iterable[str]) -> dict[str, TopicSeen]:
        return self.site.seen([self.site.naming.physical(name) for name in full_names])

    def _decided(
        self,
        full_names: Mapping[str, str],
        topics: Mapping[str, TopicSeen],
        decide: Callable[[str, Kept, States], Kept],
    ) -> dict[str, str | ReconcilerError]:
        """Decide for mirrors, those of one link at once, then shut out their copiers, and open those that ended."""
        found: dict[str, str | ReconcilerError] = {}
        for link in sorted(set(full_names.values())):
            names = [name for name, of in full_names.items() if of == link]
            shut = self._write(link, names, topics, decide, found)
            self.may_go_on()
            fence(
                self.site.client,
                [
                    copier_of(kept.entry.link_id, topic, number)
                    for topic, kept in shut.items()
                    for number in range(len(topics[topic].replicas))
                ],
            )
            self._open(link, [topic for topic, kept in shut.items() if kept.opening is not None])
        return found

    def _write(
        self,
        link: str,
        names: Iterable[str],
        topics: Mapping[str, TopicSeen],
        decide: Callable[[str, Kept, States], Kept],
        found: dict[str, str | ReconcilerError],
    ) -> dict[str, Kept]:
        """Write what is decided of mirrors of one link, and return them, by the names their broker gives them."""
        shut: dict[str, Kept] = {}

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
        """Tell that mirrors are ordinary topics: nobody copies to them any more."""
        opened = {mirror_key(topic) for topic in topics}
        if not opened:
            return

        def decide(entries: Entries) -> Changes:
            mirrors = states_of(entries).mirrors
            still = {topic: kept for topic, kept in mirrors.items() if mirror_key(topic) in opened and kept.opening}
            return {mirror_key(topic): replace(kept, opening=None).document() for topic, kept in still.items()}

        self.may_go_on()
        self.site.ledger.change(writer_of(link), decide)
