"""Links of an embedded cluster."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeVar

from reconciler.embedded.catalog.mirror_moves import find_mirror, find_mirror_link
from reconciler.embedded.catalog.mirror_tables import describe_source_topic
from reconciler.embedded.catalog.tables import is_closed
from reconciler.embedded.keys import parse_head_key
from reconciler.embedded.link_groups import list_group_versions, read_group_offsets, sync_group_offsets
from reconciler.embedded.link_side import (
    ClusterLinks,
    copy_rules,
    create_matching_mirrors,
    list_access_rules,
    list_offered_topics,
    record_source_cluster,
    record_troubles,
    update_mirrors,
)
from reconciler.embedded.maintenance.survey import load_results, store_results
from reconciler.embedded.segments.head import get_link_position, list_heads, read_heads
from reconciler.errors import NotAuthorizedError, ReconcilerError, UserError
from reconciler.lifecycles import MirrorStatus
from reconciler.providers.models import MirrorEntries, to_observed_link, to_observed_mirror
from reconciler.providers.protocol_links import TopicMark
from reconciler.resources.mirrors import (
    AccessRules,
    ForeignRecords,
    GroupOffsets,
    GroupOffsetsResult,
    LinkEntry,
    MirrorEntry,
    ObservedLink,
    ObservedMirror,
    OfferedTopic,
    Operation,
    Peer,
    Position,
    SourceTopic,
    Trouble,
    TruncatedPartition,
    stamp_trouble,
)
from reconciler.runtime.dataclass import dataclass, replace
from reconciler.runtime.retry import skip_check
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.embedded.catalog.model import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.records.log import Bounds
    from reconciler.records.offset_map import OffsetMap

# ruff: noqa: ARG002


_MARK_BYTES: Final = 8


@dataclass(frozen=True)
class EmbeddedLinks(MirrorEntries):
    """`Links` of an embedded cluster with this name in manifests."""

    cluster: EmbeddedCluster
    name: str

    @property
    def job_steps(self) -> EmbeddedLinks:
        """This object, because jobs copy its mirrors."""
        return self

    @property
    def syncs(self) -> EmbeddedSyncs:
        """Sync of everything except records."""
        return EmbeddedSyncs(self.cluster)

    def list_links(self) -> Sequence[ObservedLink]:
        """Return the links by name."""
        catalog = self.cluster.catalog.read()
        return [to_observed_link(name, self.name, link) for name, link in sorted(catalog.links.items())]

    def list_mirrors(
        self, link: str | None = None, *, name: str | None = None, source: str | None = None
    ) -> Sequence[ObservedMirror]:
        """Return mirrors in order of full names."""
        catalog = self.cluster.catalog.read()
        names = sorted(catalog.topics) if name is None else [name] if name in catalog.topics else []
        entries = ((full_name, catalog.topics[full_name].mirror) for full_name in names)
        mirrors = (
            self._to_observed(catalog, full_name)
            for full_name, mirror in entries
            if mirror is not None and source in {None, mirror.source}
        )
        return [mirror for mirror in mirrors if link is None or mirror.link == link]

    def list_lost_mirrors(self, link: str) -> Sequence[str]:
        """Return nothing, because a mirror is deleted with its topic."""
        return ()

    def find_hidden_mirrors(self, shown: Collection[str], link: str | None = None) -> Mapping[str, NotAuthorizedError]:
        """Return nothing, because the catalog shows every mirror."""
        return {}

    def read_mirror(self, full_name: str) -> ObservedMirror:
        """Return one mirror; raise if missing."""
        return self._to_observed(self.cluster.catalog.read(), full_name)

    def read_positions(self, full_name: str) -> Mapping[int, Position]:
        """Return each partition's position."""
        return self._read_positions(self.cluster.topic(full_name))

    def read_positions_of_topics(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return positions of topics, with a listing per topic and a GET per partition."""
        catalog = self.cluster.catalog.read()
        topics = {name: catalog.topics[name] for name in sorted(full_names) if name in catalog.topics}
        return dict(zip(topics, map_in_parallel(self._read_positions, topics.values(), name="positions"), strict=True))

    def _read_positions(self, topic: TopicEntry) -> Mapping[int, Position]:
        heads = read_heads(self.cluster.store, topic.id)
        return {number: get_link_position(heads.get(number)) for number in range(topic.partitions)}

    def request_verb(
        self, full_name: str, verb: str, *, operation: str = "", may_go_on: Callable[[], None] = skip_check
    ) -> ObservedMirror:
        """Request a lifecycle verb for a mirror."""
        self._open_links(may_go_on).start_operation(full_name, verb, operation=operation)
        return self.read_mirror(full_name)

    def convert_to_mirror(
        self, full_name: str, of: ObservedMirror, operation: Operation, *, may_go_on: Callable[[], None] = skip_check
    ) -> ObservedMirror:
        """Turn a topic into the mirror of `of`, which was its mirror."""
        begun = Operation(operation.id, operation.verb, approved=operation.approved)
        self._open_links(may_go_on).mirror_own_mirror(full_name, Peer(of.link, of.name, of.topic_id), begun)
        return self.read_mirror(full_name)

    def refuse_producers(self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = skip_check) -> None:
        """Do nothing, because producers cannot write to a mirror."""

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
        self._open_links(may_go_on).advance_operation(full_name, to, operation=operation, is_given_up=is_given_up)
        return self.read_mirror(full_name)

    def truncate(
        self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = skip_check
    ) -> Mapping[int, TruncatedPartition]:
        """Truncate a mirror to the end offsets of its restore."""
        return self._open_links(may_go_on).truncate_mirror(full_name, operation=operation)

    def find_diverged_records(self, full_name: str, cuts: Mapping[int, int]) -> None:
        """Return `None`, because all records at or after the cuts have diverged."""

    def read_offset_maps(self, full_name: str) -> None:
        """Return `None`, because mirrors have their sources' offsets."""

    def record_agreement(
        self,
        full_name: str,
        source_topic_id: str,
        bounds: Mapping[int, Bounds],
        *,
        operation: str,
        maps: Mapping[int, OffsetMap] | None = None,
    ) -> None:
        """Record that a new mirror equals its source up to its own ends."""
        if maps is not None:
            message = f"mirror {full_name} cannot continue: its source has the records at other offsets"
            raise UserError(message, hint="Delete the topic, and mirror it again.")
        self.cluster.linking.record_source_match(full_name, source_topic_id, bounds, operation=operation)

    def record_start_offsets(self, full_name: str, offsets: Mapping[int, int]) -> ObservedMirror:
        """Record a new mirror's first source offsets."""
        self.cluster.linking.record_start_offsets(full_name, offsets)
        return self.read_mirror(full_name)

    def find_foreign_records(
        self,
        full_names: Collection[str],
        *,
        is_stopped: bool = False,
        on_unknown: Callable[[str, ReconcilerError], None] | None = None,
    ) -> Mapping[str, Sequence[ForeignRecords]]:
        """Return nothing, because producers cannot write to a mirror."""
        return {}

    def delete_below_starts(self, full_name: str, starts: Mapping[int, int]) -> None:
        """Delete records below the source's log starts."""
        from reconciler.embedded.link_side import raise_mirror_starts  # noqa: PLC0415 - brings Arrow

        raise_mirror_starts(self.cluster, full_name, starts)

    def change_mirror(self, full_name: str, decide: Callable[[MirrorEntry], MirrorEntry]) -> None:
        """Replace a mirror's entry in one commit."""
        self.cluster.linking.change_mirror_entry(full_name, decide)

    def change_link(self, name: str, decide: Callable[[LinkEntry], LinkEntry]) -> None:
        """Replace a link's entry in one commit."""
        self.cluster.linking.change_link(name, decide)

    def now_ms(self) -> int:
        """Return the cluster's time in ms."""
        return self.cluster.now_ms()

    def list_topic_marks(self) -> Mapping[str, TopicMark]:
        """Return marks of all open topics, with one listing."""
        heads: dict[str, dict[int, str]] = {}
        for listed in list_heads(self.cluster.store):
            topic_id, number = parse_head_key(listed.key)
            mark = blake2b(listed.hint.encode(), digest_size=_MARK_BYTES).hexdigest()
            heads.setdefault(topic_id, {})[number] = mark
        catalog = self.cluster.catalog.read()
        return {
            name: TopicMark(describe_source_topic(catalog, name), heads.get(topic.id, {}))
            for name, topic in catalog.topics.items()
            if not is_closed(topic)
        }

    def load_job_rows(self, job: str) -> Mapping[str, list[Any]]:
        """Return the rows that a job stored."""
        return load_results(self.cluster.store, job)[0]

    def store_job_rows(self, job: str, rows: Mapping[str, list[Any]]) -> None:
        """Store a job's rows for the next pass."""
        store_results(self.cluster.store, job, rows, {})

    def _open_links(self, may_go_on: Callable[[], None]) -> ClusterLinks:
        return replace(self.cluster.linking, may_go_on=may_go_on)

    def _to_observed(self, catalog: Catalog, full_name: str) -> ObservedMirror:
        topic, mirror = find_mirror(catalog, full_name)
        of = find_mirror_link(catalog, mirror) or (mirror.link_id, None)
        return to_observed_mirror(self.name, full_name, (topic.id, topic.partitions), of, mirror)


R = TypeVar("R")


@dataclass(frozen=True)
class EmbeddedSyncs:
    """`SyncsByJobs` of an embedded cluster."""

    cluster: EmbeddedCluster

    def read_metadata_version(self) -> str:
        """Return the id of the last commit."""
        return self.cluster.catalog.read().id

    def list_offered_topics(self, principal: str, only: Collection[str] | None = None) -> Mapping[str, OfferedTopic]:
        """Return topics as `principal` sees them."""
        return list_offered_topics(self.cluster.catalog.read(), principal, only)

    def list_group_versions(self, is_wanted: Callable[[str], bool]) -> Mapping[str, str | ReconcilerError]:
        """Return versions of the wanted groups."""
        versions = list_group_versions(self.cluster.store)
        return {name: version for name, version in versions.items() if is_wanted(name)}

    def read_group_offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return groups' committed offsets, with one GET each."""
        return read_group_offsets(self.cluster, groups)

    def list_access_rules(self) -> AccessRules:
        """Return all access rules."""
        return list_access_rules(self.cluster.catalog.read())

    def record_source_cluster_id(self, link: str, source_cluster_id: str) -> None:
        """Record the id of a link's source cluster."""
        self._commit(f"change link {link}", lambda draft: record_source_cluster(draft, link, source_cluster_id))

    def update_mirrors(self, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError]:
        """Update mirrors to their sources' partitions and configs."""
        if not sources:
            return {}
        return self._commit("change mirrors", lambda draft: update_mirrors(draft, sources))

    def record_troubles(self, troubles: Mapping[str, Trouble | None], failed: Collection[str] = ()) -> None:
        """Record troubles of mirrors."""
        if troubles:
            now_ms = self.cluster.now_ms()
            entries = {name: stamp_trouble(trouble, now_ms) for name, trouble in troubles.items()}
            self._commit("change mirrors", lambda draft: record_troubles(draft, entries, failed))

    def create_mirrors(self, link: str, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError | None]:
        """Create mirrors of selected sources."""
        if not sources:
            return {}
        new_id, now_ms = self.cluster.fresh_id, self.cluster.now_ms()
        return self._commit(
            f"create mirrors of link {link}",
            lambda draft: create_matching_mirrors(draft, link, sources, new_id=new_id, now_ms=now_ms),
        )

    def sync_group_offsets(
        self, groups: Mapping[str, GroupOffsets]
    ) -> Mapping[str, GroupOffsetsResult | ReconcilerError]:
        """Set group offsets in mirrors."""
        self.cluster.permissions.check_super_user("change groups for a link")
        return sync_group_offsets(self.cluster, groups)

    def sync_rules(self, link: str, rules: AccessRules) -> int:
        """Copy a source's access rules to mirrors and namespaces."""
        return self._commit(f"change access rules for link {link}", lambda draft: copy_rules(draft, link, rules))

    def protect_mirrors(self, link: str) -> int:
        """Do nothing, because producers cannot write to a mirror."""
        return 0

    def _commit(self, what: str, decide: Callable[[Draft], R]) -> R:
        self.cluster.permissions.check_super_user(what)
        results: list[R] = []

        def decide_again(draft: Draft) -> None:
            results[:] = [decide(draft)]  # After a concurrent commit, `decide` runs again.

        self.cluster.catalog.commit(decide_again)
        return results[0]
