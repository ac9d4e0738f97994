"""Links and mirrors as their clusters see them: states, positions, and what is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from reconciler.lifecycles.mirror import LinkStatus, MirrorStatus
from reconciler.resources.mirrorlink import MirrorLink

CONSUMER_OFFSET_SYNC: Final = "ConsumerOffsetSync"
AUTO_CREATE_MIRROR: Final = "AutoCreateMirror"
ACL_SYNC: Final = "AclSync"
TOPIC_CONFIGS_SYNC: Final = "TopicConfigsSync"
TASKS: Final = (AUTO_CREATE_MIRROR, TOPIC_CONFIGS_SYNC, CONSUMER_OFFSET_SYNC, ACL_SYNC)
"""What a link does beside copying, in the order in which it does it."""

SOURCE_TOPIC_ID_CHANGED: Final = "SOURCE_TOPIC_ID_CHANGED"
"""Of a mirror whose source was deleted and made anew."""
UNEXPECTED_TRUNCATION: Final = "UNEXPECTED_TRUNCATION"
"""Of a mirror whose source was cut below what was copied."""
RECORDS_REFUSED: Final = "RECORDS_REFUSED"
"""Of a mirror whose copy its own cluster refuses: its source is there, so it goes on as soon as somebody mends that."""
SOURCE_TOPIC_MAY_BE_DELETED: Final = "SOURCE_TOPIC_MAY_BE_DELETED"
"""Of a mirror whose source is not there; it may come back until the link's time-out."""

NEVER_FETCHED: Final = -1
"""Last source fetch offset of a partition of which nothing was ever copied."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong: a code of the field (`SOURCE_TOPIC_ID_CHANGED`, `CONSUMER_GROUP_IN_USE_ERROR`), and in words."""

    code: str
    message: str
    since_ms: int = 0


@dataclass(frozen=True, slots=True)
class Operation:
    """What was asked of a mirror and takes more than one step; its `id` is the same on both clusters.

    `ends` are the offsets a promotion must reach, or where a restore cuts, by partition; empty until they are known.
    """

    id: str
    verb: str
    ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """A mirror as its cluster has it."""

    cluster: str
    name: str
    """Full name, prefix included."""
    topic_id: str
    link: str
    """Its name; the id it had where it is gone."""
    source_cluster: str
    """Empty where the link is gone: only that knew."""
    source: str
    status: MirrorStatus
    partitions: int
    since_ms: int = 0
    """When it came into the state it keeps; what its link imposes on it is not counted."""
    source_topic_id: str | None = None
    operation: Operation | None = None
    trouble: Trouble | None = None
    """Why it cannot fetch, why it failed, or what keeps its transition from ending."""
    stopped_by: str | None = None
    """The verb that stopped it: `promote`, `failover`, `reverse-and-start` or `reverse-and-pause`."""
    is_automatic: bool = False
    """Made by auto-create."""
    first_copy_done: bool = False
    begins: Mapping[int, int] | None = None
    """Where its partitions began, where that was not the beginning of its source's."""


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """A link as its destination has it; `declared` is without its mirrors."""

    declared: MirrorLink
    id: str
    status: LinkStatus
    trouble: Trouble | None = None
    tasks: Mapping[str, Trouble] = field(default_factory=dict)
    """What is wrong with its tasks, by name."""
    source_cluster_id: str | None = None
    """Of the cluster it was made to; another one at the same place is not followed."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.declared.metadata.name


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition of a mirror, or of what was one, stands.

    `source_topic_id`, `source_epochs` and `fetched` say what was copied last: all below `fetched` is the source's log
    as it was under those epochs. What was written here after mirroring ended lies from `fetched` on.
    """

    start: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    source_topic_id: str | None = None
    source_epochs: tuple[tuple[int, int], ...] = ()
    fetched: int = NEVER_FETCHED


@dataclass(frozen=True, slots=True)
class Truncated:
    """What a restore cut off one partition."""

    offset: int
    """Where it ends now."""
    records: int


def agreed_to(kept: Sequence[tuple[int, int]], now: Sequence[tuple[int, int]], upto: int) -> int:
    """Return the first offset, at most `upto`, that two lists of (epoch, first offset) give to different epochs."""
    borders = sorted({start for _, start in (*kept, *now) if start < upto})
    return next((start for start in borders if _epoch_at(kept, start) != _epoch_at(now, start)), upto)


def _epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), None)
