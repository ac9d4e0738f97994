"""Committed offsets as a value: what the register of a consumer group holds, and how it is written down.

Offsets are keyed by topic id and partition: a topic that moves keeps them, one made anew under its name starts without.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from reconciler.resources.groups import READING_MS

if TYPE_CHECKING:
    from reconciler.records.log import Bounds

Json = dict[str, Any]
Place: TypeAlias = tuple[str, int]
"""Topic id and partition."""


@dataclass(frozen=True, slots=True)
class Committed:
    """The next offset a group wants to read of one partition, what it noted beside it, and when it said so.

    `at_ms` is `None` where nobody who reads has said so: the offset was set by a reset. `epoch` is the newest that the
    log had when it was read, where that is known (KIP-320).
    """

    offset: int
    metadata: str = ""
    at_ms: int | None = None
    epoch: int | None = None

    def clamped(self, bounds: Bounds) -> Committed:
        """Return it within a log: what lies below its start or beyond its end cannot be read.

        Where the log's end was cut since, and has grown again, it is read from the cut on: what lies there is new.
        """
        end = bounds.end if self.epoch is None else min(bounds.end, bounds.same_to(self.epoch))
        offset = max(min(self.offset, end), bounds.start)
        return self if offset == self.offset else Committed(offset, self.metadata, self.at_ms)

    def to_json(self) -> Json:
        """Return what a register keeps."""
        kept: Json = {"offset": self.offset, "metadata": self.metadata, "at_ms": self.at_ms}
        return kept if self.epoch is None else {**kept, "epoch": self.epoch}

    @classmethod
    def from_json(cls, kept: Json) -> Committed:
        """Read it back."""
        return cls(int(kept["offset"]), str(kept["metadata"]), kept["at_ms"], kept.get("epoch"))


@dataclass(frozen=True, slots=True)
class Group:
    """What a group has committed itself, and what a link has brought over from the source of a mirror."""

    own: Mapping[Place, Committed] = field(default_factory=dict)
    synced: Mapping[Place, Committed] = field(default_factory=dict)

    @property
    def offsets(self) -> dict[Place, Committed]:
        """Where it goes on reading: its own offsets, else the synced ones."""
        return {**self.synced, **self.own}

    @property
    def topic_ids(self) -> set[str]:
        """The topics it holds anything of."""
        return {topic_id for topic_id, _ in (*self.own, *self.synced)}

    def last_commit_ms(self, topic_id: str | None = None) -> int | None:
        """Return when it last committed, of one topic or at all; `None`: it never did."""
        times = [each.at_ms for (of, _), each in self.own.items() if each.at_ms is not None and topic_id in {None, of}]
        return max(times, default=None)

    def is_reading(self, now_ms: int, topic_id: str | None = None) -> bool:
        """Tell whether it committed within 24 hours, of one topic or at all."""
        last = self.last_commit_ms(topic_id)
        return last is not None and now_ms - last < READING_MS

    def with_own(self, offsets: Mapping[Place, Committed]) -> Group:
        """Return it after a commit or a reset."""
        return Group({**self.own, **offsets}, self.synced)

    def only(self, topic_ids: Iterable[str]) -> Group:
        """Return it without the offsets of all other topics."""
        kept = frozenset(topic_ids)
        return Group(_only(self.own, kept), _only(self.synced, kept))

    def to_json(self) -> Json:
        """Return what the register keeps."""
        return {"offsets": _nested(self.own), "synced": _nested(self.synced)}

    @classmethod
    def from_json(cls, kept: Json) -> Group:
        """Read it back."""
        return cls(_flat(kept["offsets"]), _flat(kept["synced"]))


def _only(offsets: Mapping[Place, Committed], topic_ids: frozenset[str]) -> dict[Place, Committed]:
    return {place: each for place, each in offsets.items() if place[0] in topic_ids}


def _nested(offsets: Mapping[Place, Committed]) -> Json:
    kept: Json = {}
    for (topic_id, partition), each in sorted(offsets.items()):
        kept.setdefault(topic_id, {})[str(partition)] = each.to_json()
    return kept


def _flat(kept: Json) -> dict[Place, Committed]:
    return {
        (topic_id, int(partition)): Committed.from_json(one)
        for topic_id, partitions in kept.items()
        for partition, one in partitions.items()
    }
