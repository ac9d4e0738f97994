"""Sync of a link: topics, configs, groups, access rules and log starts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Final

from reconciler.errors import ReconcilerError, UserError
from reconciler.providers.brokers.ledger import COPIES, Changes, Entries, Key, build_writer_id, progress_key
from reconciler.providers.brokers.links import link_groups, link_site
from reconciler.providers.brokers.links.link_changes import LinkChanges, MirrorCreation, NewMirror
from reconciler.providers.brokers.links.link_site import LinkSite
from reconciler.providers.brokers.links.link_states import (
    LinkStates,
    build_mirror_changes,
    list_synced_keys,
    parse_states,
    resolve_synced_configs,
)
from reconciler.providers.brokers.mount_ledger import CONFIGS as SEAL
from reconciler.providers.brokers.mount_ledger import is_sealed
from reconciler.providers.brokers.offsets import EARLIEST, delete_records_below, is_only_compacted, read_offsets
from reconciler.providers.brokers.records.copy_progress import parse_offset_map
from reconciler.providers.brokers.translate import ConfigState, TopicMetadata, select_own_configs
from reconciler.resources.mirrors import (
    AccessRules,
    GroupOffsets,
    GroupOffsetsResult,
    OfferedTopic,
    SourceTopic,
    Trouble,
    check_same_source,
    match_auto_created,
    set_mirror_trouble,
    stamp_trouble,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import skip_check


@dataclass(frozen=True)
class KafkaSyncs:
    """`SyncsByJobs` of a Kafka cluster."""

    site: LinkSite

    def read_metadata_version(self) -> str:
        """Return a digest of topics, configs, access rules and links."""
        return link_site.compute_version(self.site)

    def list_offered_topics(self, principal: str, only: Collection[str] | None = None) -> Mapping[str, OfferedTopic]:
        """Return the topics that the connected principal can read; `principal` is ignored."""
        del principal
        return link_site.list_offered_topics(self.site, only)

    def list_group_versions(self, is_wanted: Callable[[str], bool]) -> Mapping[str, str | ReconcilerError]:
        """Return a digest of each wanted group, or an error."""
        return link_groups.compute_group_versions(self.site, is_wanted)

    def read_group_offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return groups' committed offsets in existing topics."""
        return link_groups.read_group_offsets(self.site, groups)

    def list_access_rules(self) -> AccessRules:
        """Return the rules of topics and known namespaces."""
        return link_groups.read_rules(self.site)

    def record_source_cluster_id(self, link: str, source_cluster_id: str) -> None:
        """Record the id of a link's source cluster."""
        LinkChanges(self.site).change_link(
            link,
            lambda entry: entry if entry.source_cluster_id else replace(entry, source_cluster_id=source_cluster_id),
        )

    def update_mirrors(self, followed: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError]:
        """Update mirrors to their sources' partitions and configs."""
        if not followed:
            return {}
        states = self.site.read_states()
        topics = self.site.read_topics([self.site.naming.to_physical(name) for name in followed])
        live = states.select_live({name: seen.id for name, seen in topics.items()})
        wanted = {
            name: (self.site.naming.to_physical(name), source)
            for name, source in followed.items()
            if (mirror := live.mirrors.get(self.site.naming.to_physical(name))) is not None and mirror.is_mirroring
        }
        described = {
            topic: configs
            for topic, configs in self.site.client.read_configs([topic for topic, _ in wanted.values()])
            if not isinstance(configs, int)
        }
        failed: dict[str, ReconcilerError] = {}
        for name, (topic, source) in wanted.items():
            try:
                self._update_mirror(name, live, (topics[topic], described.get(topic, {})), source)
            except ReconcilerError as error:
                failed[name] = error
        return failed

    def _update_mirror(
        self,
        name: str,
        states: LinkStates,
        current: tuple[TopicMetadata, Mapping[str, ConfigState]],
        source: SourceTopic,
    ) -> None:
        topic, described = current
        configs = select_own_configs(described)
        mirror = states.mirrors[topic.name]
        check_same_source(name, mirror.entry, source)
        named_link, partitions = states.find_link(mirror), len(topic.replicas)
        if source.partitions < partitions:
            message = f"mirror {name} has {partitions} partitions, and its source {source.partitions}"
            raise UserError(message, hint="Partitions only grow: delete the mirror and create it again.")
        taken = (
            {}
            if named_link is None
            else resolve_synced_configs(source, named_link[1], self.site.capabilities(), configs)
        )
        if is_sealed(configs):  # A sealed topic keeps the seal's configs until its role change ends.
            taken = {key: value for key, value in taken.items() if key not in SEAL}
        if not self.site.client.dialect.tells_own:  # A set value may be reported as the default.
            shown = {key: state.value for key, state in described.items()}
            taken = {key: value for key, value in taken.items() if value is None or shown.get(key) != value}
        self.site.change_topic(name, (partitions, configs), (source.partitions, taken), skip_check)
        if mirror.entry.source_topic_id is None and source.incarnation is not None:
            known = source.incarnation
            LinkChanges(self.site).change_mirror(name, mirror.link, lambda entry: replace(entry, source_topic_id=known))

    def record_troubles(self, troubles: Mapping[str, Trouble | None], failed: Collection[str] = ()) -> None:
        """Record troubles, with one write per link."""
        now_ms = self.site.now_ms()
        links: dict[str, set[str]] = {}
        for topic, mirror in self.site.read_states().mirrors.items():
            if mirror.name in troubles and mirror.is_mirroring:
                links.setdefault(mirror.link, set()).add(topic)

        def decide(topics: Collection[str], entries: Entries) -> Changes:
            mirrors = parse_states(entries).mirrors
            changes: dict[Key, Mapping[str, object] | None] = {}
            for topic in sorted(topics):
                mirror = mirrors.get(topic)
                if mirror is None or not mirror.is_mirroring:
                    continue
                trouble = stamp_trouble(troubles[mirror.name], now_ms)
                after = replace(mirror, entry=set_mirror_trouble(mirror.entry, trouble, fails=mirror.name in failed))
                changes.update({} if after == mirror else build_mirror_changes(topic, after))
            return changes

        for link, topics in sorted(links.items()):
            self.site.ledger.change(build_writer_id(link), partial(decide, topics))

    def create_mirrors(self, link: str, wanted: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError | None]:
        """Create mirrors of matching source topics."""
        if not wanted:
            return {}
        states = self.site.read_states()
        link_entry, existing = (
            states.require_link(link),
            self.site.client.read_topics().keys() - states.list_creating_topics(link),
        )
        free = {
            name: NewMirror(source, wanted[source], {}, is_automatic=True)
            for name, source in match_auto_created(link_entry, wanted).items()
            if self.site.naming.to_physical(name) not in existing
        }
        results = MirrorCreation(self.site).create_mirrors(link, free)
        return {name: result if isinstance(result, ReconcilerError) else None for name, result in results.items()}

    def sync_group_offsets(
        self, groups: Mapping[str, GroupOffsets]
    ) -> Mapping[str, GroupOffsetsResult | ReconcilerError]:
        """Commit group offsets, translated by the offset maps."""
        return link_groups.sync_group_offsets(self.site, groups)

    def sync_rules(self, link: str, rules: AccessRules) -> int:
        """Sync a source's access rules."""
        return link_groups.sync_rules(self.site, link, rules)

    def protect_mirrors(self, link: str) -> int:
        """Update the rules that deny writes."""
        return link_groups.protect_mirrors(self.site, link)


_RETENTION: Final = frozenset({"retention.bytes", "retention.ms"})


def delete_below_source_starts(site: LinkSite, full_name: str, starts: Mapping[int, int]) -> None:
    """Delete copied records below the source's log starts (F-C-054). Idempotent; needs DELETE.

    Does nothing if retention is not synced, mirroring has ended, or the topic is only compacted.
    """
    topic, seen = site.read_topic(full_name)
    if seen is None:
        return
    entries = site.ledger.read(*COPIES)
    states = parse_states(entries).select_live({topic: seen.id})
    mirror = states.mirrors.get(topic)
    named_link = None if mirror is None else states.find_link(mirror)
    if (
        mirror is None
        or named_link is None
        or not mirror.is_mirroring
        or not set(list_synced_keys(named_link[1])) >= _RETENTION
    ):
        return
    ends = {
        number: end
        for number, start in starts.items()
        if start and number < len(seen.replicas) and (end := _translate_start(entries, seen, number, start))
    }
    begins = read_offsets(site.client, [(topic, number) for number in ends], EARLIEST)
    later = {number: end for number, end in ends.items() if begins[topic, number] < end}
    if later and not is_only_compacted(site.client, topic):
        delete_records_below(site.client, seen, later)


def _translate_start(entries: Entries, seen: TopicMetadata, number: int, start: int) -> int:
    """Return the mirror's offset after the last record that the source deleted, or 0."""
    progress = entries.get(progress_key(seen.name, number))
    if progress is None or progress.get("copy_id") not in {None, seen.id}:
        return 0
    return parse_offset_map(entries, seen.name, number).find_target_end(start)
