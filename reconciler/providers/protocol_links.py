"""What a platform answers about the links whose destination it is, and what jobs ask of it to copy their mirrors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from reconciler.runtime.retry import go_on

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
        Operation,
        Position,
        SourceTopic,
        Trouble,
        TruncatedPartition,
    )


@dataclass(frozen=True, slots=True)
class TopicMark:
    """A topic as one bulk look has it. A partition that was never written has no mark."""

    topic: SourceTopic
    partitions: Mapping[int, str]
    """What changes whenever a partition does; it says nothing else."""


class Links(Protocol):
    """The links whose destination is one cluster, and their mirrors.

    Each call is about its own side only.
    """

    @property
    def by_jobs(self) -> LinksByJobs | None:
        """What jobs ask of the cluster to copy mirrors and to change their roles; `None`: it does so by itself."""
        ...

    def links(self) -> Sequence[ObservedLink]:
        """Return the links, by name."""
        ...

    def mirrors(
        self, link: str | None = None, *, name: str | None = None, source: str | None = None
    ) -> Sequence[ObservedMirror]:
        """Return the mirrors, stopped ones too, by full name: all, or those of a link, a full name, or a source."""
        ...

    def lost(self, link: str) -> Sequence[str]:
        """Return mirrors of a link whose topics were deleted behind it, or made anew by others, by full name.

        Nothing where a mirror ends with its topic.
        """
        ...

    def hidden(self, shown: Collection[str], link: str | None = None) -> Mapping[str, NotAuthorizedError]:
        """Return the mirrors that are to be copied, are not among `shown` and may not be described, by full name."""
        ...

    def mirror(self, full_name: str) -> ObservedMirror:
        """Return one mirror.

        Raises:
            UserError: There is no such topic, or it is not mirrored.
        """
        ...

    def positions(self, full_name: str) -> Mapping[int, Position]:
        """Return where the partitions of a topic stand, one look at each head."""
        ...

    def positions_of(self, full_names: Collection[str]) -> Mapping[str, Mapping[int, Position]]:
        """Return where the partitions of many topics stand, those that are there, by as few requests as can be."""
        ...


class LinksByJobs(Links, Protocol):
    """Links whose mirrors jobs copy, and topics that become mirrors of others.

    A job that drives a transition reads both sides. Each call is one durable step and may be repeated; `operation` is
    the id that tells one transition from the next.
    """

    @property
    def syncs(self) -> SyncsByJobs:
        """What links keep in step beside records, this cluster's side of it."""
        ...

    def ask(
        self, full_name: str, verb: str, *, operation: str = "", may_go_on: Callable[[], None] = go_on
    ) -> ObservedMirror:
        """Ask for a verb of the table on this side, and return what the mirror is then.

        Ends here for `pause`, `resume` and `failover` (heads handed over, groups clamped); `promote`, `reverse-…` only
        begin, under the id `operation`.

        Raises:
            UserError: That is not legal in its state: it says what is.
        """
        ...

    def marks(self) -> Mapping[str, TopicMark]:
        """Return every topic and mirror by full name, and what changes whenever one of its partitions does.

        One bulk listing, whatever their number.
        """
        ...

    def join(
        self, full_name: str, of: ObservedMirror, operation: Operation, *, may_go_on: Callable[[], None] = go_on
    ) -> ObservedMirror:
        """Let an ordinary topic become the mirror of `of`, its own mirror on the peer: it takes no records any more.

        A reversal leaves it PENDING_MIRROR, a restore PENDING_SETUP_FOR_RESTORE. What is open of transactions is
        aborted. What the operation says of records that `of` never got counts when it begins.

        Raises:
            UserError: There is no link half of that name here, or the topic is a mirror already.
        """
        ...

    def aim(self, full_name: str, *, operation: str, ends: Mapping[int, int]) -> ObservedMirror:
        """Write down where an operation is to end: the source's ends, or where to cut. The first ones count."""
        ...

    def shut(self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = go_on) -> None:
        """Refuse the records of all producers until an operation of a mirror is over; open transactions end first.

        Does nothing where the platform refuses them by itself.

        Raises:
            UserError: The operation is over.
            RetryableError: A transaction stays open, or a broker does not answer.
        """
        ...

    def advance(
        self,
        full_name: str,
        to: MirrorStatus,
        *,
        operation: str,
        is_given_up: bool = False,
        may_go_on: Callable[[], None] = go_on,
    ) -> ObservedMirror:
        """Let a mirror go to the next state of its operation; STOPPED hands its heads to producers.

        `is_given_up`: the source of a reversal takes records again, so that its mirror may be ACTIVE.

        Raises:
            UserError: The operation is not that one any more, or the table has no such move.
        """
        ...

    def truncate(
        self, full_name: str, *, operation: str, may_go_on: Callable[[], None] = go_on
    ) -> Mapping[int, TruncatedPartition]:
        """Cut what a restore has to cut (`operation.ends`), and return what was cut, by partition."""
        ...

    def diverged(self, full_name: str, cuts: Mapping[int, int]) -> Sequence[DivergedPartition] | None:
        """Return what a topic has from where its mirror agrees with it last, by records; `None`: its offsets say it."""
        ...

    def offset_maps(self, full_name: str) -> Mapping[int, OffsetMap] | None:
        """Return where records of its source lie in a mirror, stopped or not; `None`: at the same offsets."""
        ...

    def stand(
        self,
        full_name: str,
        source_topic_id: str,
        bounds: Mapping[int, Bounds],
        *,
        operation: str,
        maps: Mapping[int, OffsetMap] | None = None,
    ) -> None:
        """Note that a new mirror equals its source up to its own ends: roles were swapped, or all else was cut.

        `maps`: where the source's records lie that it has from here, if their offsets are others.

        Raises:
            UserError: That operation is not under way.
        """
        ...

    def begin(self, full_name: str, offsets: Mapping[int, int]) -> ObservedMirror:
        """Note where a new mirror begins, and let partitions without records begin there. The first ones count."""
        ...

    def foreign(
        self,
        full_names: Collection[str],
        *,
        is_stopped: bool = False,
        on_unknown: Callable[[str, ReconcilerError], None] | None = None,
    ) -> Mapping[str, Sequence[ForeignRecords]]:
        """Return the records in mirrors that their links did not copy, by full name; those without any are absent.

        `is_stopped`: of stopped mirrors, too, those that lie before the last record that was copied. `on_unknown`:
        takes each mirror of which it is not known, and why; without it that error is raised.

        Nothing where the platform refuses all other producers.
        """
        ...

    def follow_starts(self, full_name: str, starts: Mapping[int, int]) -> None:
        """Let go of what lies below the log starts of the source, where retention is synced."""
        ...

    def trouble(
        self, full_name: str, trouble: Trouble | None, *, fails: bool = False, operation: str | None = None
    ) -> None:
        """Note why a mirror cannot fetch or go on, or that it can again; `fails`: it is FAILED for good.

        What kept an `operation` from going on is not noted where it is over.
        """
        ...

    def link_trouble(self, link: str, status: LinkStatus, trouble: Trouble | None) -> None:
        """Note whether the link reaches its source: ACTIVE, UNAVAILABLE or FAILED."""
        ...

    def task_trouble(self, link: str, task: str, trouble: Trouble | None) -> None:
        """Note what is wrong with a task of a link, or that nothing is any more."""
        ...

    def remembered(self, job: str) -> Mapping[str, list[Any]]:
        """Return what a job of `run` kept for its next pass; nothing where that is lost."""
        ...

    def remember(self, job: str, rows: Mapping[str, list[Any]]) -> None:
        """Keep rows that JSON can hold for the next pass of a job."""
        ...


class SyncsByJobs(Protocol):
    """What links keep in step beside records: one side only, each call whole or not at all.

    The first half is asked of the source of a link, the second of its destination. Every call takes everything at once,
    so that a link with ten thousand topics costs what a link with one does.
    """

    def version(self) -> str:
        """Return a word that changes whenever anything does but records and groups: while it stays, so does the rest.

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def offered(self, principal: str, only: Collection[str] | None = None) -> Mapping[str, OfferedTopic]:
        """Return every topic by full name, or of `only` some, as a link that reads as `principal` sees it: one look.

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def group_versions(self, is_wanted: Callable[[str], bool]) -> Mapping[str, str | ReconcilerError]:
        """Return the wanted groups, and a word that changes whenever each commits anything, or why it may not be read.

        That is one listing.
        """
        ...

    def group_offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return where groups go on reading, as they said it, of topics that are there; those that are gone are absent.

        What a link brought counts, too, so that chains of links pass it on.
        """
        ...

    def rules(self) -> AccessRules:
        """Return the access rules of all topics and namespaces, in one look."""
        ...

    def meet(self, link: str, source_cluster_id: str) -> None:
        """Write down which cluster a link was made to; the first one counts."""
        ...

    def follow(self, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError]:
        """Bring partitions and synced configs of mirrors, by full name, to what their sources have.

        Return why some could not. Nothing is written where nothing differs.
        """
        ...

    def note(self, troubles: Mapping[str, Trouble | None], failed: Collection[str] = ()) -> None:
        """Note what is wrong with mirrors, by full name, or (`None`) that it is over; those of `failed` are FAILED."""
        ...

    def make_mirrors(self, link: str, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError | None]:
        """Make mirrors of sources, by full name, as auto-create does, and return those made, and why others were not.

        Left out are names that are taken here, and what the filters of the link, as they are now, do not take.
        """
        ...

    def sync_group_offsets(
        self, groups: Mapping[str, GroupOffsets]
    ) -> Mapping[str, GroupOffsetsResult | ReconcilerError]:
        """Set where groups go on reading mirrors, never beyond their ends; what a group committed here itself wins.

        A group that reads one of the mirrors here (it committed within 24 hours) is left alone.
        """
        ...

    def bring_rules(self, link: str, rules: AccessRules) -> int:
        """Give mirrors, by the full names of their sources, and namespaces that are here the access rules of a source.

        Those that the link brought before and that are not among them go; all others stay. Return how many places
        changed.
        """
        ...

    def protect(self, link: str) -> int:
        """Keep writers out of the mirrors of a link, as it says (`protect`), and return how many mirrors changed.

        Nothing is done where the platform refuses producers itself.

        Raises:
            UserError: It is not possible there, or not with these access rules.
        """
        ...
