"""Of which state a lockfile is, where it and its snapshots disagree."""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.lockfile import Lockfile
    from reconciler.state.remains import Remains
    from reconciler.state.snapshots import SnapshotRow

_LINEAGE: Final = re.compile(rb'"lineage":"([^"\\]+)"')
_LENGTH: Final = 4096
"""Bytes of a snapshot that are read: its keys are sorted, so the lineage stands near the beginning."""
_GZIP: Final = 31


def lineage_to_keep(store: ObjectStore, remains: Remains, lockfile: Lockfile) -> str:
    """Return the lineage that a lockfile says, or the one of every snapshot, where it names one of them.

    A lockfile that names no snapshot of these, beside others' lineage, is another state's: nothing is to be guessed.
    """
    rows = remains.snapshots
    if lockfile.state is None or lockfile.state.key not in {row.key for row in rows}:
        return lockfile.lineage
    if _lineage_of(store, rows[0]) == lockfile.lineage:
        return lockfile.lineage
    said = {found for row in rows if (found := _lineage_of(store, row)) is not None}
    return said.pop() if len(said) == 1 else lockfile.lineage


def _lineage_of(store: ObjectStore, row: SnapshotRow) -> str | None:
    """Return which state a snapshot says it is of, by its first bytes; `None` where they cannot be read."""
    try:
        head = zlib.decompressobj(_GZIP).decompress(store.get_range(row.key, 0, _LENGTH), _LENGTH)
    except zlib.error:
        return None
    found = _LINEAGE.search(head)
    return found[1].decode() if found else None
