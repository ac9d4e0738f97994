"""Waiting until a mirror has all its source has, before it is promoted: it is copied again and again until then.

A promotion has no way back, so this changes no state: where the lag does not shrink, the mirror is what it was.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, RetryableError
from reconciler.resources.address import address_of
from reconciler.workflow.counting import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.providers.base import Provider
    from reconciler.records.log import Bounds
    from reconciler.resources.mirroring import MirrorSeen

_NAMED: Final = 5
_PAUSE_S: Final = 1.0
"""Between two looks at a source that goes on, or in which a transaction is open."""
_SLICE_S: Final = 0.1
"""A pause is cut into pieces this long, so that a request to stop is heard: its handler may set no event."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What one partition lacks: `lag` offsets; `stable` is where an open transaction keeps it, if one does."""

    partition: int
    lag: int
    stable: int | None = None

    def __str__(self) -> str:
        """Return it in words."""
        lacks = f"partition {self.partition} lacks {counted(self.lag, 'record', 'records')}"
        return lacks if self.stable is None else f"{lacks}: a transaction is open there since offset {self.stable:,}"


@dataclass(frozen=True)
class CatchingUp:
    """Brings a mirror to lag 0. `copy` brings it to where its source ends at that moment."""

    providers: Mapping[str, Provider]
    copy: Callable[[MirrorSeen], None]
    is_stopped: Callable[[], bool]
    clock: Callable[[], float] = monotonic

    def run(self, cluster: str, full_name: str, timeout_ms: int | None = None) -> None:
        """Copy until nothing lags. `timeout_ms` bounds how long the lag may not shrink; by default as its link says.

        Raises:
            RetryableError: It does not shrink, or the source does not answer; nothing was changed but the records
                that were copied.
            IncompleteError: It was stopped.
        """
        links = self.providers[cluster].links
        mirror = links.mirror(full_name)
        least: int | None = None
        shrunk_at = self.clock()
        while True:
            self._check_stop(full_name)
            self.copy(mirror)
            behind = self.behind(mirror)
            lag = sum(each.lag for each in behind)
            if not lag:
                return
            if least is None or lag < least:
                least, shrunk_at = lag, self.clock()
            patience_s = (self._patience_ms(mirror) if timeout_ms is None else timeout_ms) / 1000
            if self.clock() - shrunk_at >= patience_s:
                raise _does_not_shrink(mirror, behind, patience_s)
            self._pause(full_name)

    def behind(self, mirror: MirrorSeen) -> list[Behind]:
        """Return the partitions that lag, as both sides are now."""
        source = address_of("topic", mirror.source_cluster, mirror.source)
        bounds = self.providers[mirror.source_cluster].log(source).bounds()
        own = self.providers[mirror.cluster].links.positions(mirror.name)
        return [
            _behind(partition, found, own[partition].end if partition in own else 0)
            for partition, found in sorted(bounds.items())
            if partition not in own or own[partition].end < found.end
        ]

    def _patience_ms(self, mirror: MirrorSeen) -> int:
        links = self.providers[mirror.cluster].links.links()
        return next(link.declared.spec.retry_timeout for link in links if link.name == mirror.link)

    def _pause(self, full_name: str) -> None:
        until = self.clock() + _PAUSE_S
        waiting = threading.Event()
        while self.clock() < until:
            self._check_stop(full_name)
            waiting.wait(_SLICE_S)

    def _check_stop(self, full_name: str) -> None:
        if self.is_stopped():
            raise IncompleteError(
                f"stopped before {full_name} had caught up: it was not promoted",
                hint="Go on with: reconciler apply --resume",
            )


def _behind(partition: int, found: Bounds, end: int) -> Behind:
    return Behind(partition, found.end - end, found.stable if found.stable < found.end else None)


def _does_not_shrink(mirror: MirrorSeen, behind: list[Behind], patience_s: float) -> RetryableError:
    named = "; ".join(map(str, behind[:_NAMED]))
    more = f"; and {len(behind) - _NAMED:,} more" if behind[_NAMED:] else ""
    address = address_of("mirror", mirror.cluster, mirror.name)
    is_open = any(each.stable is not None for each in behind)
    stop = (
        "Let that transaction end" if is_open else f"Stop the producers of {mirror.source} on {mirror.source_cluster}"
    )
    return RetryableError(
        f"the lag of {address} does not shrink, for {patience_s:,.0f} s: {named}{more}; nothing was changed",
        hint=f"{stop}, then try again. A failover does not wait, and loses what is missing.",
    )
