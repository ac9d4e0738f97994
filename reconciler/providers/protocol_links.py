"""Protocols of links and mirrors, and of the jobs that copy mirrors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.retry import skip_check

if TYPE_CHECKING:
    from reconciler.errors import NotAuthorizedError, ReconcilerError
    from reconciler.lifecycles import LinkStatus, MirrorStatus
    from reconciler.records.log import Bounds
    from reconciler.records.offset_map import OffsetMap
    from reconciler.resources.mirrors import (
        AccessRules,
        DivergedPartition,
        ForeignRecords,
        GroupOffsets,
        GroupOffsetsResult,
        ObservedLink,
        ObservedMirror,
        OfferedTopic,
        OffsetStretch,
        Operation,
        Position,
        SourceTopic,
        Trouble,
        TruncatedPartition,
    )


@dataclass(frozen=True, slots=True)
class TopicMark:
    """Topic with an opaque mark per non-empty partition, which changes with its records."""

    topic: SourceTopic
    partitions: Mapping[int, str]


class Links(Protocol):
    """Links whose destination is one cluster, and their mirrors.

    Calls read and change only the destination.
    """

    @property
    def job_steps(self) -> LinksByJobs | None:
        """Steps of jobs that copy mirrors and change their roles; `None` if the cluster itself does both."""
        ...

    def list_links(self) -> Sequence[ObservedLink]:
        """Return the links by name."""
        ...

    def list_mirrors(
        self, link: str | None = None, *, name: str | None = None, source: str | None = None
    ) -> Sequence[ObservedMirror]:
        """Return mirrors by full name, including stopped ones; filter by link, full name or source."""
        ...

    def list_lost_mirrors(self, link: str) -> Sequence[str]:
        """Return full names of a link's mirrors whose topics were deleted or recreated.

        Empty if the platform deletes mirrors with their topics.
        """
        ...

    def find_hidden_mirrors(self, shown: Collection[str], link: str | None = None) -> Mapping[str, NotAuthorizedError]:
        """Return errors by full name for mirrors outside `shown` that the caller may not describe."""
        ...

    def read_mirror(self, full_name: str) -> ObservedMirror:
        """Return one mirror.

        Raises:
            UserError: The topic does not exist or is not mirrored.
        """
        ...

    def read_positions(self, full_name: str) -> Mapping[int, Position]:
        """Return each partition's position."""
        ...

    def read_positions_of_topics(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return positions of many topics in few requests. Missing topics are absent."""
        ...


class LinksByPlatform(Links, Protocol):
    """Links whose mirrors the platform copies."""

    def preview_verb(
        self, verb: str, link: str, full_names: Collection[str]
    ) -> Mapping[str, Sequence[OffsetStretch] | ReconcilerError]:
        """Return the offsets that a verb would truncate, or why the platform refuses it, by full name.

        Empty if the platform does not tell.
        """
        ...


class LinksByJobs(Links, Protocol):
    """Links whose mirrors jobs copy.

    Each call is one durable step and may be repeated. `operation` is the transition's id.
    """

    @property
    def syncs(self) -> SyncsByJobs:
        """Configs, groups and access rules that links sync."""
        ...

    def request_verb(
        self, full_name: str, verb: str, *, operation: str = "", may_go_on: Callable[[], None] = skip_check
    ) -> ObservedMirror:
        """Request a lifecycle verb, and return the resulting mirror.

        `pause`, `resume` and `failover` are complete on return. `promote` and `reverse-…` only begin `operation`.

        Raises:
            UserError: The mirror's state does not allow the verb.
        """
        ...

    def list_topic_marks(self) -> Mapping[str, TopicMark]:
        """Return topics and mirrors by full name, with marks of their partitions. Sends one bulk listing."""
        ...

    def convert_to_mirror(
        self, full_name: str, of: ObservedMirror, operation: Operation, *, may_go_on: Callable[[], None] = skip_check
    ) -> ObservedMirror:
        """Make an ordinary topic the mirror of `of`, its own mirror on the peer. Producers are rejected.

        A reversal leaves it PENDING_MIRROR, a restore PENDING_SETUP_FOR_RESTORE. Open transactions are aborted.
        `operation` lists records that `of` lacks; later calls do not change the list.

        Raises:
            UserError: This cluster has no entry of that link, or the topic is already a mirror.
        """
        ...

    def record_end_offsets(self, full_name: str, *, operation: str, ends: Mapping[int, int]) -> ObservedMirror:
        """Record the offsets at which an operation ends: the source's ends, or the offsets to truncate to.

        Later calls change nothing.
        """
        ...

    def refuse_producers(self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = skip_check) -> None:
        """Reject all producers until a mirror's operation ends. Open transactions end first.

        Does nothing if the platform itself rejects producers of mirrors.

        Raises:
            UserError: The operation has ended.
            RetryableError: A transaction stays open, or a broker does not respond.
        """
        ...

    def advance_state(
        self,
        full_name: str,
        to: MirrorStatus,
        *,
        operation: str,
        is_given_up: bool = False,
        may_go_on: Callable[[], None] = skip_check,
    ) -> ObservedMirror:
        """Move a mirror to the next state of its operation. STOPPED allows producers.

        `is_given_up` allows ACTIVE, because the source of a reversal accepts producers again.

        Raises:
            UserError: Another operation is in progress, or the lifecycle has no such transition.
        """
        ...

    def truncate(
        self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = skip_check
    ) -> Mapping[int, TruncatedPartition]:
        """Truncate the mirror to `operation.ends` for a restore; return the truncated partitions."""
        ...

    def find_diverged_records(self, full_name: str, cuts: Mapping[int, int]) -> Sequence[DivergedPartition] | None:
        """Return a topic's records at or after `cuts` that its mirror lacks; `None` means all."""
        ...

    def read_offset_maps(self, full_name: str) -> Mapping[int, OffsetMap] | None:
        """Return an active or stopped mirror's offset maps; `None` if offsets equal the source's."""
        ...

    def record_agreement(
        self,
        full_name: str,
        source_topic_id: str,
        bounds: Mapping[int, Bounds],
        *,
        operation: str,
        maps: Mapping[int, OffsetMap] | None = None,
    ) -> None:
        """Record that a new mirror equals its source up to its own ends, after a reversal or truncation.

        `maps` are offset maps of the source's records from this topic; `None` means equal offsets.

        Raises:
            UserError: That operation is not in progress.
        """
        ...

    def record_start_offsets(self, full_name: str, offsets: Mapping[int, int]) -> ObservedMirror:
        """Record the source offsets at which a new mirror begins. Empty partitions start there.

        Later calls change nothing.
        """
        ...

    def find_foreign_records(
        self,
        full_names: Collection[str],
        *,
        is_stopped: bool = False,
        on_unknown: Callable[[str, ReconcilerError], None] | None = None,
    ) -> Mapping[str, Sequence[ForeignRecords]]:
        """Return records in mirrors that their links did not copy, by full name. Clean mirrors are absent.

        `is_stopped` includes stopped mirrors, up to their last copied record. `on_unknown` receives mirrors that cannot
        be checked; without it, their error is raised. Empty if the platform rejects other producers.
        """
        ...

    def delete_below_starts(self, full_name: str, starts: Mapping[int, int]) -> None:
        """Delete records below the source's log starts, if retention is synced."""
        ...

    def record_trouble(
        self, full_name: str, trouble: Trouble | None, *, fails: bool = False, operation: str | None = None
    ) -> None:
        """Record why a mirror cannot fetch or continue; `None` clears the trouble. `fails` sets it to FAILED.

        Ignored if `operation` has ended.
        """
        ...

    def record_link_trouble(self, link: str, status: LinkStatus, trouble: Trouble | None) -> None:
        """Record whether the link reaches its source: ACTIVE, UNAVAILABLE or FAILED."""
        ...

    def record_task_trouble(self, link: str, task: str, trouble: Trouble | None) -> None:
        """Record the error of a link's task; `None` clears it."""
        ...

    def load_job_rows(self, job: str) -> Mapping[str, list[Any]]:
        """Return the rows that a job of `run` stored in its last pass; empty if lost."""
        ...

    def store_job_rows(self, job: str, rows: Mapping[str, list[Any]]) -> None:
        """Store JSON rows for the next pass of a job."""
        ...


class SyncsByJobs(Protocol):
    """Configs, groups and access rules that links sync. Each call is atomic and concerns one cluster.

    The first five methods are called on a link's source, the others on its destination.
    """

    def read_metadata_version(self) -> str:
        """Return an opaque value that changes with metadata, but not with records or group offsets.

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def list_offered_topics(self, principal: str, only: Collection[str] | None = None) -> Mapping[str, OfferedTopic]:
        """Return topics by full name as a link that reads as `principal` sees them. `only` limits the topics.

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def list_group_versions(self, is_wanted: Callable[[str], bool]) -> Mapping[str, str | ReconcilerError]:
        """Return an opaque version, which each commit changes, or an error for each wanted group.

        Sends one listing.
        """
        ...

    def read_group_offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return groups' committed offsets for existing topics, including synced ones. Missing groups are absent."""
        ...

    def list_access_rules(self) -> AccessRules:
        """Return the access rules of all topics and namespaces."""
        ...

    def record_source_cluster_id(self, link: str, source_cluster_id: str) -> None:
        """Record the id of a link's source cluster. Later calls change nothing."""
        ...

    def update_mirrors(self, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError]:
        """Update mirrors to their sources' partitions and synced configs; return errors by full name.

        Writes nothing if nothing differs.
        """
        ...

    def record_troubles(self, troubles: Mapping[str, Trouble | None], failed: Collection[str] = ()) -> None:
        """Record mirrors' troubles by full name; `None` clears one. Mirrors in `failed` become FAILED."""
        ...

    def create_mirrors(self, link: str, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError | None]:
        """Create mirrors of sources for auto-create; return errors (`None` on success) by full name.

        Existing names and excluded topics are skipped.
        """
        ...

    def sync_group_offsets(
        self, groups: Mapping[str, GroupOffsets]
    ) -> Mapping[str, GroupOffsetsResult | ReconcilerError]:
        """Set group offsets in mirrors, at most to their ends. A group's own commits stay.

        Groups that read a mirror (a commit within 24 hours) are skipped.
        """
        ...

    def sync_rules(self, link: str, rules: AccessRules) -> int:
        """Sync a source's access rules, by its topics' names, to mirrors and namespaces; return how many changed.

        Deletes rules that the link synced earlier and that `rules` lacks.
        """
        ...

    def protect_mirrors(self, link: str) -> int:
        """Deny writes to a link's mirrors as its `protect` requests; return how many mirrors changed.

        Does nothing if the platform itself rejects producers of mirrors.

        Raises:
            UserError: The cluster cannot deny writes with these access rules.
        """
        ...
