"""One sync of a link: topics, configs, groups, and where logs begin."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from reconciler.errors import ReconcilerError, UserError
from reconciler.providers.kafka.ledger import COPIES, Changes, Entries, Key, progress_key, writer_of
from reconciler.providers.kafka.links import link_groups, link_site
from reconciler.providers.kafka.links.link_changes import LinkChanges, MirrorCreation, New
from reconciler.providers.kafka.links.link_site import Site
from reconciler.providers.kafka.links.link_states import (
    States,
    mirror_changes,
    states_of,
    synced_keys,
    taken_configs,
)
from reconciler.providers.kafka.mount_ledger import CONFIGS as SEAL
from reconciler.providers.kafka.mount_ledger import is_sealed
from reconciler.providers.kafka.offsets import EARLIEST, delete_below, is_only_compacted, offsets_at
from reconciler.providers.kafka.records.copy_progress import map_of
from reconciler.providers.kafka.translate import TopicSeen, own_values
from reconciler.resources.mirrors import (
    AccessRules,
    GroupOffsets,
    GroupOffsetsResult,
    OfferedTopic,
    SourceTopic,
    Trouble,
    auto_created,
    check_same_source,
    noted,
    troubled,
)
from reconciler.runtime.retry import go_on


@dataclass(frozen=True)
class KafkaSyncs:
    """`SyncsByJobs` over a Kafka cluster."""

    site: Site

    def version(self) -> str:
        """Return a word for all but records and groups."""
        return link_site.version(self.site)

    def offered(self, principal: str, only: Collection[str] | None = None) -> Mapping[str, OfferedTopic]:
        """Return topics as a link sees them: whoever we connect as reads them, whatever the link is called."""
        del principal
        return link_site.offered(self.site, only)

    def group_versions(self, is_wanted: Callable[[str], bool]) -> Mapping[str, str | ReconcilerError]:
        """Return the wanted groups and what changes with each."""
        return link_groups.group_versions(self.site, is_wanted)

    def group_offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return where groups go on reading."""
        return link_groups.group_offsets(self.site, groups)

    def rules(self) -> AccessRules:
        """Return all access rules of namespaces that are known and of topics that are there."""
        return link_groups.rules(self.site)

    def meet(self, link: str, source_cluster_id: str) -> None:
        """Write down which cluster a link was made to."""
        LinkChanges(self.site).change_link(
            link, lambda here: here if here.source_cluster_id else replace(here, source_cluster_id=source_cluster_id)
        )

    def follow(self, followed: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError]:
        """Bring mirrors to the shape of their sources: two requests where nothing differs."""
        if not followed:
            return {}
        states = self.site.states()
        topics = self.site.seen([self.site.naming.physical(name) for name in followed])
        live = states.live({name: seen.id for name, seen in topics.items()})
        wanted = {
            name: (self.site.naming.physical(name), source)
            for name, source in followed.items()
            if (kept := live.mirrors.get(self.site.naming.physical(name))) is not None and kept.follows
        }
        own = {
            topic: own_values(configs)
            for topic, configs in self.site.client.configs([topic for topic, _ in wanted.values()])
            if not isinstance(configs, int)
        }
        failed: dict[str, ReconcilerError] = {}
        for name, (topic, source) in wanted.items():
            try:
                self._follow(name, live, (topics[topic], own.get(topic, {})), source)
            except ReconcilerError as error:
                failed[name] = error
        return failed

    def _follow(
        self, name: str, states: States, here: tuple[TopicSeen, Mapping[str, str]], source: SourceTopic
    ) -> None:
        topic, configs = here
        kept = states.mirrors[topic.name]
        check_same_source(name, kept.entry, source)
        found, partitions = states.found(kept), len(topic.replicas)
        if source.partitions < partitions:
            message = f"mirror {name} has {partitions} partitions, and its source {source.partitions}"
            raise UserError(message, hint="Partitions only grow: delete the mirror and create it again.")
        taken = {} if found is None else taken_configs(source, found[1], self.site.capabilities(), configs)
        if is_sealed(configs):  # Until roles are swapped: what it took before holds then.
            taken = {key: value for key, value in taken.items() if key not in SEAL}
        self.site.shape(name, (partitions, configs), (source.partitions, taken), go_on)
        if kept.entry.source_topic_id is None and source.incarnation is not None:
            known = source.incarnation
            LinkChanges(self.site).change(name, kept.link, lambda entry: replace(entry, source_topic_id=known))

    def note(self, troubles: Mapping[str, Trouble | None], failed: Collection[str] = ()) -> None:
        """Note what is wrong with mirrors, those of one link at once."""
        now_ms = self.site.now_ms()
        links: dict[str, set[str]] = {}
        for topic, kept in self.site.states().mirrors.items():
            if kept.name in troubles and kept.follows:
                links.setdefault(kept.link, set()).add(topic)

        def decide(topics: Collection[str], entries: Entries) -> Changes:
            mirrors = states_of(entries).mirrors
            changes: dict[Key, Mapping[str, object] | None] = {}
            for topic in sorted(topics):
                kept = mirrors.get(topic)
                if kept is None or not kept.follows:
                    continue
                trouble = noted(troubles[kept.name], now_ms)
                after = replace(kept, entry=troubled(kept.entry, trouble, fails=kept.name in failed))
                changes.update({} if after == kept else mirror_changes(topic, after))
            return changes

        for link, topics in sorted(links.items()):
            self.site.ledger.change(writer_of(link), partial(decide, topics))

    def make_mirrors(self, link: str, wanted: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError | None]:
        """Make mirrors as auto-create does."""
        if not wanted:
            return {}
        states = self.site.states()
        found, there = states.link(link), self.site.client.topics().keys() - states.announced(link)
        free = {
            name: New(source, wanted[source], {}, is_automatic=True)
            for name, source in auto_created(found, wanted).items()
            if self.site.naming.physical(name) not in there
        }
        made = MirrorCreation(self.site).make(link, free)
        return {name: each if isinstance(each, ReconcilerError) else None for name, each in made.items()}

    def bring_offsets(self, groups: Mapping[str, GroupOffsets]) -> Mapping[str, GroupOffsetsResult | ReconcilerError]:
        """Set where groups go on reading mirrors, exactly where they were at their sources."""
        return link_groups.bring_offsets(self.site, groups)

    def bring_rules(self, link: str, rules: AccessRules) -> int:
        """Give mirrors and namespaces the access rules of a source."""
        return link_groups.bring_rules(self.site, link, rules)

    def protect(self, link: str) -> int:
        """Deny writing to the mirrors of a link to whom rules let write, where it says so; else take that back."""
        return link_groups.protect(self.site, link)


# Where mirrors begin: where their sources do, by the offset map, while their link syncs retention.


_RETENTION: Final = frozenset({"retention.bytes", "retention.ms"})


def follow_starts(site: Site, full_name: str, starts: Mapping[int, int]) -> None:
    """Delete from a mirror what lies below the log starts of its source, and never more than was copied (F-C-054).

    Nothing is deleted where the link does not sync retention, once mirroring is over, and of a topic that is compacted
    alone: brokers delete no records of such. Repeating is harmless.

    Raises:
        NotAuthorizedError: The principal may not DELETE the topic.
        RetryableError: The brokers do not answer.
    """
    topic, seen = site.topic(full_name)
    if seen is None:
        return
    entries = site.ledger.read(*COPIES)
    states = states_of(entries).live({topic: seen.id})
    kept = states.mirrors.get(topic)
    found = None if kept is None else states.found(kept)
    if kept is None or found is None or not kept.follows or not set(synced_keys(found[1])) >= _RETENTION:
        return
    ends = {
        number: end
        for number, start in starts.items()
        if start and number < len(seen.replicas) and (end := _deleted_to(entries, seen, number, start))
    }
    begins = offsets_at(site.client, [(topic, number) for number in ends], EARLIEST)
    later = {number: end for number, end in ends.items() if begins[topic, number] < end}
    if later and not is_only_compacted(site.client, topic):
        delete_below(site.client, seen, later)


def _deleted_to(entries: Entries, seen: TopicSeen, number: int, start: int) -> int:
    """Return below which offset of a mirror all is gone from its source, which begins at `start`; 0: nothing is.

    That is behind the last record that is gone: what others wrote before the first one that is kept stays.
    """
    progress = entries.get(progress_key(seen.name, number))
    if progress is None or progress.get("copy_id") not in {None, seen.id}:
        return 0
    return map_of(entries, seen.name, number).target_below(start)
