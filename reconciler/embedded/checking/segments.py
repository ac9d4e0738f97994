"""Remote segments and their indexes held against what object storage has: by one listing, deeply by reading them.

An index is made up for by its segment, so that nothing is lost with one. What the local tier has too is not lost
either: scrubbing puts it again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.checking.findings import Finding, Kind
from reconciler.embedded.keys import index_key
from reconciler.records.log import OffsetRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from reconciler.embedded.checking.findings import Place
    from reconciler.embedded.checking.stored import Stored
    from reconciler.embedded.partition.entries import Entry

    Deep = Callable[[Entry, Place], Iterator[Finding]]
    """Reads a segment whole, and its index."""

_IN_RUNS: Final = {
    Kind.SEGMENT_MISSING: ("the segment is not there", "{:,} segments are not there, this one the first"),
    Kind.INDEX_MISSING: ("the index is not there", "{:,} indexes are not there, this one the first"),
}
_LEAST_INDEX_BYTES: Final = 12
_HERE: Final = "; the local tier has these offsets too"
_PUT_AGAIN: Final = ", and `reconciler run --only scrub` puts it again"
_ONCE_DELETED: Final = ": delete this object, and `reconciler run --only scrub` puts it again"


@dataclass(frozen=True, slots=True)
class Suspect:
    """A segment, and what is wrong with it or its index."""

    entry: Entry
    finding: Finding


@dataclass(frozen=True, slots=True)
class SegmentCheck:
    """Looks at segments of one partition."""

    listed: Stored
    local_start: int
    """From here on the local tier has every offset too."""
    uploads: bool
    """Whether anything is put there again."""
    deep: Deep | None = None

    def suspects(self, entries: Sequence[Entry], place: Place) -> Iterator[Suspect]:
        """Yield what is wrong, oldest first; `place` is that of the manifest."""
        sizes = self.listed.sizes([entry.key for entry in entries])
        indexes = self.listed.sizes([index_key(entry.key) for entry in entries])
        for entry, size, index in zip(entries, sizes, indexes, strict=True):
            there, beside = replace(place, key=entry.key), replace(place, key=index_key(entry.key))
            if size is None:
                yield Suspect(entry, self._lost(entry, Kind.SEGMENT_MISSING, "", there))
                continue
            if size != entry.bytes:
                what = f"it has {size:,} bytes, not {entry.bytes:,} as its manifest says"
                yield Suspect(entry, self._lost(entry, Kind.SEGMENT_DIFFERS, what, there, then=_PUT_AGAIN))
            elif self.deep is not None:
                yield from (self._read(entry, finding) for finding in self.deep(entry, there))
            if index is None:
                yield Suspect(entry, Finding(Kind.INDEX_MISSING, "", beside))
            elif index < _LEAST_INDEX_BYTES:
                yield Suspect(entry, Finding(Kind.INDEX_DIFFERS, f"it has {index:,} bytes: too few for any", beside))

    def runs(self, suspects: Iterable[Suspect]) -> Iterator[Finding]:
        """Yield findings, one for each run of neighbours that are gone."""
        run: list[Suspect] = []
        for each in suspects:
            if run and not _goes_on(run[-1], each):
                yield self._run(run)
                run = []
            run.append(each)
        if run:
            yield self._run(run)

    def _run(self, run: Sequence[Suspect]) -> Finding:
        first = run[0].finding
        if first.kind not in _IN_RUNS:
            return first
        one, many = _IN_RUNS[first.kind]
        what = one if len(run) == 1 else many.format(len(run))
        is_lost = first.kind is Kind.SEGMENT_MISSING
        if is_lost and not first.gone:
            what += self._here(_PUT_AGAIN)
        gone = (OffsetRange(first.gone[0].start, run[-1].finding.gone[0].stop),) if first.gone else ()
        stored = sum(each.entry.bytes for each in run) if is_lost else 0
        return replace(first, what=what, gone=gone, objects=len(run), bytes=stored)

    def _read(self, entry: Entry, finding: Finding) -> Suspect:
        if finding.kind is Kind.INDEX_DIFFERS:
            return Suspect(entry, finding)
        return Suspect(entry, self._lost(entry, finding.kind, finding.what, finding.place, then=_ONCE_DELETED))

    def _lost(self, entry: Entry, kind: Kind, what: str, place: Place, *, then: str = "") -> Finding:
        """Return a finding of a segment, with the offsets that are gone with it: those that it alone has."""
        stop = min(entry.last + 1, self.local_start)
        if entry.base < stop:
            return Finding(kind, what, place, (OffsetRange(entry.base, stop),), bytes=entry.bytes)
        return Finding(kind, what + self._here(then) if what else what, place, (), bytes=entry.bytes)

    def _here(self, then: str) -> str:
        return _HERE + (then if self.uploads else "")


def _goes_on(one: Suspect, other: Suspect) -> bool:
    a, b = one.finding, other.finding
    is_like = a.kind is b.kind and a.kind in _IN_RUNS and bool(a.gone) == bool(b.gone)
    return is_like and other.entry.base == one.entry.last + 1
