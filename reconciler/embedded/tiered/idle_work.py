"""Housekeeping of the remote tier while it is idle: a state machine over a clock and a meter of other requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING

from reconciler.lifecycles import HOUSEKEEPING, HousekeepingState
from reconciler.resources.cluster_properties import read_property

if TYPE_CHECKING:
    from reconciler.objectstore.wrappers import RequestMeter


_WORKS = frozenset({HousekeepingState.ACTIVE, HousekeepingState.DRAINING})
_COUNTED = {
    (HousekeepingState.IDLE, HousekeepingState.ACTIVE): ("housekeeping_rounds",),
    (HousekeepingState.IDLE, HousekeepingState.DRAINING): ("housekeeping_rounds", "housekeeping_drains"),
    (HousekeepingState.PAUSE, HousekeepingState.DRAINING): ("housekeeping_drains",),
    (HousekeepingState.ACTIVE, HousekeepingState.PAUSE): ("housekeeping_pauses",),
    (HousekeepingState.PAUSE, HousekeepingState.ACTIVE): ("housekeeping_resumes",),
}


@dataclass(frozen=True, slots=True)
class IdleLimits:
    """Limits below which object storage counts as idle, and the interval between jobs."""

    window_ms: int
    requests: float
    """Maximum number of requests in the window."""
    interval_ms: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> IdleLimits:
        """Parse the cluster's properties."""
        window_ms = int(read_property(properties, "cloud_storage_idle_timeout_ms") or 0)
        per_second = float(read_property(properties, "cloud_storage_idle_threshold_rps") or 0)
        interval_ms = int(read_property(properties, "cloud_storage_housekeeping_interval_ms") or 0)
        return cls(window_ms, per_second * window_ms / 1000, interval_ms)


@dataclass(slots=True)
class TierHousekeeping:
    """Decides whether a housekeeping job may run now. Thread-safe; jobs take turns."""

    meter: RequestMeter
    """Counts requests other than those of housekeeping."""
    now_ms: Callable[[], int]
    state: HousekeepingState = HOUSEKEEPING.initial
    _limits: IdleLimits = field(default_factory=lambda: IdleLimits.of({}))
    _began_ms: int = field(init=False)
    _ran_ms: dict[str, int] = field(default_factory=dict)
    _was_paused: bool = False
    _counts: Counter[str] = field(default_factory=Counter)
    _lock: RLock = field(default_factory=RLock, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._began_ms = self.now_ms()

    def begin_job(self, job: str, limits: IdleLimits, *, drains: bool = False) -> bool:
        """Start a job if this is allowed now; return whether it started. `drains` ignores other requests."""
        with self._lock:
            if self.state is HousekeepingState.STOPPED:
                return False
            self._limits, self._was_paused = limits, False
            waited_ms = self.now_ms() - self._ran_ms.get(job, self._began_ms)
            if drains or waited_ms >= limits.interval_ms:
                self._enter_state(HousekeepingState.DRAINING)
            elif self._is_idle():
                self._enter_state(HousekeepingState.ACTIVE)
            return self.state in _WORKS

    def may_continue(self) -> bool:
        """Return whether the running job may continue; other requests pause it."""
        with self._lock:
            is_idle = self._is_idle()
            if self.state is HousekeepingState.ACTIVE and not is_idle:
                self._was_paused = True
                self._enter_state(HousekeepingState.PAUSE)
            elif self.state is HousekeepingState.PAUSE and is_idle:
                self._enter_state(HousekeepingState.ACTIVE)
            return self.state in _WORKS

    def end_job(self, job: str) -> None:
        """Record the end of a job; a paused job counts as unfinished."""
        with self._lock:
            if self.state not in _WORKS:
                return
            self._enter_state(HousekeepingState.IDLE)
            if not self._was_paused:
                self._ran_ms[job] = self.now_ms()
                self._counts["housekeeping_jobs_completed"] += 1

    def pop_counts(self) -> Mapping[str, int]:
        """Return and reset housekeeping's counters of `resources.vitals.COUNTER_HELP`."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return dict(counts)

    def stop(self) -> None:
        """Start no more jobs."""
        with self._lock:
            if self.state is not HousekeepingState.STOPPED:
                self.state = HOUSEKEEPING.apply_verb(self.state, "stop")

    def _is_idle(self) -> bool:
        return self.meter.count_within(self._limits.window_ms) <= self._limits.requests

    def _enter_state(self, state: HousekeepingState) -> None:
        if state is not self.state:
            self._counts.update(_COUNTED.get((self.state, state), ()))
            self.state = HOUSEKEEPING.follow_automatic_move(self.state, state)


@dataclass(frozen=True, slots=True)
class HousekeepingTurn:
    """Access of one maintenance pass to housekeeping."""

    keeping: TierHousekeeping | None = None
    """Shared with other work of this process; `None` if there is none to wait for."""
    drains: bool = True
    """Whether a caller waits for the result."""

    @contextmanager
    def run_job(self, job: str, properties: Mapping[str, str]) -> Iterator[Callable[[], bool]]:
        """Yield a function that returns whether the job may start or continue."""
        if self.keeping is None:
            yield lambda: True
            return
        keeping = self.keeping
        if not keeping.begin_job(job, IdleLimits.of(properties), drains=self.drains):
            yield lambda: False
            return
        try:
            yield keeping.may_continue
        finally:
            keeping.end_job(job)
