"""Which partitions of which mirrors may lack something, without looking at each.

Every topic of a cluster is marked by one listing. What a mirror was complete as of is remembered: the marks of its
source's partitions, and its own. Only where one of them is another now, or was never seen, is there anything to do.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from reconciler.providers.base import Marked, Provider
    from reconciler.resources.mirroring import MirrorSeen
    from reconciler.resources.sourcetopic import SourceTopic

JOB: Final = "mirror"
_FINGERPRINT: Final = 16

Row = list[Any]
"""`[fingerprint of the mirror and of what it follows, {partition: [mark of the source, own mark or null]}]`."""


@dataclass(frozen=True, slots=True)
class Change:
    """What there is to do for one mirror."""

    only: Collection[int]
    """The partitions to look at."""
    is_followed: bool
    """Whether the mirror and the shape of its source are as they were when it was last complete."""


@dataclass(slots=True)
class Remembered:
    """What the mirrors of one cluster were complete as of. Losing it costs one look at every partition."""

    rows: dict[str, Row] = field(default_factory=dict)
    _kept: dict[str, Row] = field(default_factory=dict)

    @classmethod
    def of(cls, provider: Provider) -> Remembered:
        """Return what the last round left."""
        rows = provider.remembered(JOB)
        return cls({name: row for name, row in rows.items() if _is_row(row)})

    def change(self, mirror: MirrorSeen, source: Marked, own: Marked | None) -> Change:
        """Return what may be missing of a mirror whose source looks like this, and itself like that."""
        fingerprint, known = self.rows.get(mirror.name, ["", {}])
        is_followed = fingerprint == _fingerprint(mirror, source.topic)
        if not is_followed:
            return Change(range(source.topic.partitions), is_followed=False)
        own_marks = {} if own is None else own.partitions
        only = [
            number
            for number, mark in source.partitions.items()
            if not _is_known(known.get(str(number)), mark, own_marks.get(number))
        ]
        return Change(only, is_followed=True)

    def keep(
        self, mirror: MirrorSeen, source: Marked, own: Marked | None, *, changed: Collection[int], is_complete: bool
    ) -> None:
        """Remember what a mirror has now: all as it was listed; what was `changed` only where that `is_complete`."""
        fingerprint = _fingerprint(mirror, source.topic)
        known = self.rows.get(mirror.name, ["", {}])
        before = known[1] if known[0] == fingerprint else {}
        if not is_complete and not before:
            return
        own_marks, copied = ({} if own is None else own.partitions), set(changed)
        marks: dict[str, list[str | None]] = {}
        for number, mark in source.partitions.items():
            if number not in copied:
                marks[str(number)] = [mark, own_marks.get(number)]
            elif is_complete:
                marks[str(number)] = [mark, None]  # What it is listed as once it was copied to, the next round sees.
        self._kept[mirror.name] = [fingerprint, marks]

    def leave(self, mirror: MirrorSeen) -> None:
        """Remember of a mirror that is not looked at this time what was remembered before."""
        if mirror.name in self.rows:
            self._kept[mirror.name] = self.rows[mirror.name]

    def end(self, provider: Provider) -> None:
        """Keep it for the next round, where it is another."""
        kept, self._kept = self._kept, {}
        if kept != self.rows:
            provider.remember(JOB, kept)
            self.rows = kept


def _is_known(row: list[str | None] | None, mark: str, own: str | None) -> bool:
    return row is not None and row[0] == mark and row[1] in {None, own}


def _is_row(row: object) -> bool:
    return isinstance(row, list) and len(row) == len(["fingerprint", "marks"]) and isinstance(row[1], dict)


def _fingerprint(mirror: MirrorSeen, source: SourceTopic) -> str:
    """Return what changes where a mirror is another, follows another topic, or one of another shape."""
    shape: Mapping[str, str] = dict(sorted(source.configs.items()))
    text = repr((mirror.topic_id, mirror.link, mirror.since_ms, source.incarnation, source.partitions, shape))
    return hashlib.sha256(text.encode()).hexdigest()[:_FINGERPRINT]
