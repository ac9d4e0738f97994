"""Object storage whose use is counted, for metrics: what the driver does there. Executors count what they upload."""

from __future__ import annotations

from collections import Counter
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.errors import LostRaceError, MissingObjectError, ReconcilerError
from reconciler.objectstore.noted import NotedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from reconciler.objectstore.base import ObjectStore

T = TypeVar("T")

_ANSWERS: Final = (LostRaceError, MissingObjectError)
"""What says how things are; no request failed."""
_SEGMENT: Final = ".parquet"


class CountingStore(NotedStore):
    """Passes everything on, notes it, and counts it. Travels as the store it is of."""

    def __init__(self, inner: ObjectStore) -> None:
        """Count nothing yet."""
        super().__init__(inner._inner if isinstance(inner, NotedStore) else inner)  # noqa: SLF001 - noted here instead
        self._counts: Counter[str] = Counter()
        self._lock = Lock()

    def taken(self) -> Mapping[str, int]:
        """Return what was counted since this was last asked, by the names of `vitals.COUNTED`."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return dict(counts)

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, unconditionally."""
        super().delete(self._passing(keys))

    def _passing(self, keys: Iterable[str]) -> Iterator[str]:
        for key in keys:
            if key.endswith(_SEGMENT):
                self._count("deleted_segments")
            yield key

    def _asked(self, method: str, key: str, ask: Callable[[], T], size: Callable[[T], int] = lambda _answer: 0) -> T:
        try:
            answer = super()._asked(method, key, ask, size)
        except ReconcilerError as error:
            if not isinstance(error, _ANSWERS):
                self._count("errors_total")
            raise
        counted = _counted(method, key)
        if counted is not None:
            self._count(counted)
        return answer

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1


def _counted(method: str, key: str) -> str | None:
    """Return as what a request counts that went well."""
    match method, key.rpartition("/")[2]:
        case "swap", "manifest.json":
            return "partition_manifest_uploads_total"
        case "swap", "topic.json":
            return "topic_manifest_uploads_total"
        case "put", _ if "/pages/" in key:
            return "spillover_manifest_uploads_total"
        case "get", _ if "/pages/" in key:
            return "spillover_manifest_reads_total"
        case _:
            return None
