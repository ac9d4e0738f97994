"""What one job of a pass did, and what of it could not be done."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.errors import OwnershipLostError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.partition.headswaps import Partition
    from reconciler.errors import ReconcilerError

_NAMED: Final = 100


@dataclass(slots=True)
class Tended:
    """What one job did; `records` and `bytes` are what it removed, of a roll what it wrote anew, of an upload those."""

    partitions: int = 0
    records: int = 0
    bytes: int = 0
    failed: int = 0
    errors: list[ReconcilerError] = field(default_factory=list)
    """At most a hundred of them."""
    counts: Counter[str] = field(default_factory=Counter, compare=False)
    """What it did with object storage, by the names of `resources.vitals.COUNTED`."""
    levels: Mapping[str, float] = field(default_factory=dict, compare=False)
    """What holds after it, by the names of `resources.vitals.LEVELS`."""
    _counted: set[Partition] = field(default_factory=set, repr=False, compare=False)
    _failed: set[Partition | str] = field(default_factory=set, repr=False, compare=False)
    _lost: set[str] = field(default_factory=set, repr=False, compare=False)
    """Topics that are not ours any more."""
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)

    def count(self, *, records: int, stored: int, partition: Partition | None = None) -> None:
        """Count a partition that was tended; one that is named comes once, however often it was."""
        self.partitions += partition is None or partition not in self._counted
        if partition is not None:
            self._counted.add(partition)
        self.records += records
        self.bytes += stored

    def fail(self, tended: Partition | str, error: ReconcilerError) -> None:
        """Count a partition, or something else, that could not be tended. Safe from any thread.

        A topic that is not this cluster's any more counts once, with all of its partitions.
        """
        is_lost = isinstance(error, OwnershipLostError)
        where = tended if isinstance(tended, str) else tended.full_name if is_lost else str(tended)
        if where not in error.message:
            error.message = f"{where}: {error.message}"
        with self._lock:
            self._failed.add(tended)
            if is_lost and where in self._lost:
                return
            if is_lost:
                self._lost.add(where)
            self.failed += 1
            if len(self.errors) < _NAMED:
                self.errors.append(error)

    def has_failed(self, partition: Partition) -> bool:
        """Tell whether something of a partition could not be done. Safe from any thread."""
        with self._lock:
            return partition in self._failed

    def break_off(self, error: ReconcilerError) -> None:
        """Say what kept the rest from being done."""
        self.failed += 1
        self.errors.append(error)
