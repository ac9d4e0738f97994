"""Housekeeping while object storage is idle."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from reconciler.lifecycles import HOUSEKEEPING, HousekeepingState
from reconciler.resources.cluster_properties import read_property
from reconciler.runtime.dataclass import dataclass, field

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
    """Limits below which object storage is idle, and the interval between jobs."""

    window_ms: int
    requests: float
    """Maximum requests in the window."""
    interval_ms: int

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> IdleLimits:
        """Parse the limits from cluster properties."""
        window_ms = int(read_property(properties, "cloud_storage_idle_timeout_ms") or 0)
        per_second = float(read_property(properties, "cloud_storage_idle_threshold_rps") or 0)
        interval_ms = int(read_property(properties, "cloud_storage_housekeeping_interval_ms") or 0)
        return cls(window_ms, per_second * window_ms / 1000, interval_ms)


@dataclass(slots=True)
class TierHousekeeping:
    """Decides whether a housekeeping job may run now. Thread-safe."""

    meter: RequestMeter
    """Counts all requests except those of housekeeping."""
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
        """Start a job if storage is idle or the job is overdue; return whether it started.

        `drains` starts it even if storage is busy.
        """
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
        """Whether the running job may continue; it pauses while storage is busy."""
        with self._lock:
            is_idle = self._is_idle()
            if self.state is HousekeepingState.ACTIVE and not is_idle:
                self._was_paused = True
                self._enter_state(HousekeepingState.PAUSE)
            elif self.state is HousekeepingState.PAUSE and is_idle:
                self._enter_state(HousekeepingState.ACTIVE)
            return self.state in _WORKS

    def end_job(self, job: str) -> None:
        """Record a job's end; a paused job counts as unfinished."""
        with self._lock:
            if self.state not in _WORKS:
                return
            self._enter_state(HousekeepingState.IDLE)
            if not self._was_paused:
                self._ran_ms[job] = self.now_ms()
                self._counts["housekeeping_jobs_completed"] += 1

    def pop_counts(self) -> Mapping[str, int]:
        """Return and reset counters of `resources.vitals.COUNTER_HELP`."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return dict(counts)

    def stop(self) -> None:
        """Prevent further jobs."""
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
    """Runs the housekeeping jobs of one maintenance pass."""

    keeping: TierHousekeeping | None = None
    """Shared state of this process; `None` allows every job."""
    drains: bool = True
    """Whether jobs run even while storage is busy."""

    @contextmanager
    def run_job(self, job: str, properties: Mapping[str, str]) -> Iterator[Callable[[], bool]]:
        """Yield a function that tells whether the job may run."""
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
