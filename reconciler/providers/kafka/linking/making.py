"""Mirrors made and deleted: the ledger says first what is to be, so that a topic can be told to be ours."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError, UserError
from reconciler.providers.base import go_on
from reconciler.providers.kafka.ledger import MAP, PROGRESS, STATES, writer_of
from reconciler.providers.kafka.linking.configuring import taken_configs
from reconciler.providers.kafka.linking.states import CREATING, Kept, link_changes, mirror_changes, states_of
from reconciler.providers.kafka.offsets import bounds_of
from reconciler.resources.linkentries import ACTIVE, MirrorEntry
from reconciler.resources.linkrules import check_deletable, check_mirrored, check_own, check_unused, synced_configs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from reconciler.providers.kafka.ledger import Changes, Entries
    from reconciler.providers.kafka.linking.site import Site
    from reconciler.providers.kafka.linking.states import States
    from reconciler.providers.kafka.metadata import TopicSeen
    from reconciler.resources.sourcetopic import SourceTopic

_ALL: Final = (*STATES, PROGRESS, MAP)


@dataclass(frozen=True, slots=True)
class New:
    """What is asked of a new mirror: its source's full name and shape, and configs of its own."""

    source: str
    of: SourceTopic
    configs: Mapping[str, str]
    is_automatic: bool = False


@dataclass(frozen=True)
class Making:
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
        there = self.site.seen([self.site.naming.physical(name) for name in wanted])
        states = self._announced(link, wanted, there, found)
        found_link = states.link(link)
        here = self.site.capabilities()
        shapes = {
            name: (new.of.partitions, self._configs(new, taken_configs(new.of, found_link, here, new.configs)))
            for name, new in wanted.items()
            if name not in found
        }
        made = self.site.make(shapes, self.may_go_on)
        ids = {name: each for name, each in made.items() if isinstance(each, str)}
        self._identified(link, ids)
        return {**found, **made}

    def delete(self, link: str, full_name: str, topic_id: str | None) -> None:
        """Delete a mirror and all that is kept of it; one that is gone is gone.

        Raises:
            UserError: It is on its way to another state.
            BlockedError: Its link would make it again.
            StalePlanError: It was made anew since it was looked at.
        """
        topic, seen = self.site.topic(full_name)
        if seen is not None:
            states = self.site.states()
            kept = states.mirror(topic, full_name, seen.id)
            check_deletable(full_name, kept.entry, states.found(kept))
            deleted = self.site.remove({full_name: topic_id or seen.id}, self.may_go_on)[full_name]
            if isinstance(deleted, ReconcilerError):
                raise deleted
        self.may_go_on()
        self.site.ledger.change(writer_of(link), lambda entries: _forgotten(entries, {topic}), *_ALL)

    def delete_link(self, name: str) -> None:
        """Remove a link, and what is kept of its stopped mirrors: they are ordinary topics from then on (F-C-091).

        Raises:
            BlockedError: It has mirrors that are not stopped.
        """
        ids = {topic: seen.id for topic, seen in self.site.seen().items()}

        def decide(entries: Entries) -> Changes:
            states = states_of(entries)
            if name not in states.links:
                return {}
            live = states.live(ids)
            check_unused(name, ((kept.name, kept.entry) for _, kept in live.of(name)))
            gone = {topic for topic, _ in states.of(name)}
            return {**link_changes(name, None), **_forgotten(entries, gone)}

        self.may_go_on()
        self.site.ledger.change(writer_of(name), decide, *_ALL)

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
                    changes |= {
                        **_forgotten(entries, {topic}),
                        **mirror_changes(topic, self._new(link, name, new, states)),
                    }
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
        message = f"topic {name} exists and differs from what was to be created"
        raise UserError(message, hint="Somebody made it since the plan: plan again.")

    def _new(self, link: str, name: str, new: New, states: States) -> Kept:
        entry = MirrorEntry(
            states.link(link).id,
            new.source,
            new.of.incarnation,
            state=CREATING,
            since_ms=self.site.now_ms(),
            is_automatic=new.is_automatic,
        )
        return Kept(name, link, None, entry)

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

    def _is_empty(self, seen: TopicSeen) -> bool:
        places = [(seen.name, number) for number in range(len(seen.replicas))]
        return all(at.end == 0 for at in bounds_of(self.site.client, places).values())

    @staticmethod
    def _configs(new: New, taken: Mapping[str, str | None]) -> dict[str, str]:
        return {**new.configs, **{key: value for key, value in taken.items() if value is not None}}


def _forgotten(entries: Entries, topics: Iterable[str]) -> Changes:
    """Return the removal of all that is kept of mirrors."""
    gone = set(topics)
    return {key: None for key in entries if key[0] in {*_ALL} - {"link"} and key[1] in gone}
