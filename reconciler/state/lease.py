"""The lease held: renewed beside the work, checked before every call, and the only way to commit state.

One writer: beats, checkpoints, the open run and the release pass through one lock and build on the last version, so a
checkpoint is a beat too. Deadlines count from when the last confirmed write was sent.
"""

from __future__ import annotations

import logging
import threading
from contextlib import contextmanager, suppress
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from reconciler.errors import LeaseError, LostRaceError, ReconcilerError, RetryableError, UserError
from reconciler.noting import note
from reconciler.state.insisting import insist
from reconciler.state.lockfile import KEY, Lockfile, OpenRun, Read, read_lockfile
from reconciler.state.runs import RunFile, write_run
from reconciler.state.snapshots import Snapshot, encode, snapshot_of
from reconciler.state.swaps import MovedError, closed, freed, keep_snapshot, lost_to, pointing, unchanged, without_run
from reconciler.state.terms import Terms
from reconciler.wording import ended_sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    from reconciler.effects import Effects
    from reconciler.objectstore.base import ObjectStore
    from reconciler.resources.inventory import Record

_LOGGER: Final = logging.getLogger("reconciler.lease")
_ATTEMPTS: Final = 5
_SOON_S: Final = 0.1
"""A renewal that is due as soon as this is written now: a sleep may end a rounding before its time."""


class Lease:
    """A lease this process holds. `acquire` makes it; it ends by `close`, `release`, or by being lost."""

    def __init__(self, store: ObjectStore, effects: Effects, taken: Read, *, sent: float) -> None:
        """Hold what was taken by a write sent at `sent`."""
        self._store = store
        self._effects = effects
        self._current = taken
        self._sent = sent
        self._writing = threading.Lock()
        self._committing = threading.Lock()  # held around `_writing`: beats go on between
        self._lost: LeaseError | None = None
        self._trouble: str | None = None
        self._end_renewing: Callable[[], None] | None = None
        self.terms = Terms(taken.lockfile.lease.lease_s)
        self.taken_from: str | None = None
        """The run whose lease had expired and was taken over."""

    # -- what it says

    @property
    def lockfile(self) -> Lockfile:
        """What we wrote last."""
        return self._current.lockfile

    @property
    def run(self) -> str:
        """The run that holds it."""
        return self.lockfile.lease.run or ""

    @property
    def store(self) -> ObjectStore:
        """The store of the state."""
        return self._store

    @property
    def may_start(self) -> bool:
        """Tell whether it is young enough to start something new; if not, wait for a renewal or for `check` to fail."""
        return self._age() < self.terms.may_start_s

    def check(self) -> None:
        """Do nothing while it is surely ours.

        Raises:
            LeaseError: It was given back, taken over, or could not be renewed for too long: write nothing more.
        """
        if self._is_free:
            raise LeaseError("the lease was given back", hint="What was still under way is found by the next run.")
        if self._lost is None and self._age() >= self.terms.give_up_s:
            why = f" ({self._trouble})" if self._trouble else ""
            note(_LOGGER, "lost", epoch=self.lockfile.lease.epoch, age_s=round(self._age(), 3))
            self._lost = LeaseError(
                f"the lease could not be renewed for {self._age():.0f} s{why}",
                hint="Nothing more was written. What was done is found by the next run: reconciler apply",
            )
        if self._lost is not None:
            raise self._lost

    # -- what it does

    def start_renewing(self) -> None:
        """Renew from a thread and a client of its own, until the lease ends."""
        self._end_renewing = self._effects.apart(self._renew_forever)

    async def snapshot(self) -> Snapshot:
        """Return the state as it is under this lease."""
        return await self._effects.call(lambda: snapshot_of(self._store, self.lockfile))

    async def begin(self, run: RunFile) -> None:
        """Write `run.json`, then open the run; nothing may be done before this returns."""

        def write() -> int:
            self.check()
            write_run(self._store, run)
            opened = OpenRun(run=run.run, plan_digest=run.plan_digest)
            return self._write(self._store, lambda lockfile: lockfile.model_copy(update={"open_run": opened}))

        await insist(self._effects, write)

    async def renew(self) -> None:
        """Write one beat."""
        await insist(self._effects, lambda: self._write(self._store, unchanged))

    async def commit(self, record: Record) -> int:
        """Make `record` the state and return its serial; the lease goes on. `record` must not change meanwhile."""
        return await self._effects.call(lambda: self._commit(record, unchanged))

    async def end_run(self, record: Record | None) -> int:
        """Close the open run and go on holding the lease: make `record` the state (`None`: it did not change)."""
        return await insist(self._effects, lambda: self._end(record, without_run))

    async def close(self, record: Record | None, *, keeps_run: bool = False) -> int:
        """End the run: make `record` the state (`None`: it did not change), free the lease, in one swap.

        With `keeps_run` the run stays open: something of it is left, or in doubt.

        Raises:
            LeaseError: It was lost: nothing of this was written.
            MendFirstError: The disk is full, or credentials have expired: the lease is free once it has expired.
        """
        finish = freed if keeps_run else closed
        try:
            return await insist(self._effects, lambda: self._end(record, finish))
        finally:
            self._stop_renewing()

    async def release(self) -> None:
        """Free the lease of a run that did nothing; a lease that is lost or free already stays as it is."""
        if self._lost is None:
            await self.close(None, keeps_run=True)
        self._stop_renewing()

    async def __aenter__(self) -> Self:
        """Hold it for a block."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Free it at the end of the block, whatever happened; the block's own error is the one that counts."""
        if error is None:
            await self.release()
            return
        try:
            if self._lost is None:  # tried once: what went wrong may be that nothing can be written
                await self._effects.call(lambda: self._end(None, freed))
        except ReconcilerError as trouble:
            error.add_note(f"The lease could not be freed either: {trouble}")
            if isinstance(error, ReconcilerError):
                error.hint = f"{ended_sentence(error.hint)} {self._left_held()}"
        finally:
            self._stop_renewing()

    # -- beneath

    def _left_held(self) -> str:
        return (
            f"The lease could not be given back: it is free {self.terms.lease_s:.0f} s from now, or at once with: "
            f"reconciler state unlock {self.run}"
        )

    @property
    def _is_free(self) -> bool:
        return self._current.lockfile.lease.status == "free"

    def _age(self) -> float:
        return self._effects.now() - self._sent

    def _stop_renewing(self) -> None:
        if self._end_renewing is not None:
            self._end_renewing()
            self._end_renewing = None

    async def _renew_forever(self, effects: Effects) -> None:
        store = copy(self._store)  # a client of its own, which nothing done through ours can hold up
        pause = self.terms.renew_s
        while True:
            await effects.sleep(pause)
            if (left := self.terms.renew_s - self._age()) > _SOON_S:
                pause = left  # a checkpoint was a beat
                continue
            try:
                await effects.call(lambda: self._write(store, unchanged))
            except LeaseError:
                return
            except ReconcilerError as error:
                self._trouble = str(error)
                note(_LOGGER, "not renewed", epoch=self.lockfile.lease.epoch, trouble=type(error).__name__)
                pause = self.terms.renew_s / 3
            else:
                pause = self.terms.renew_s

    def _commit(self, record: Record, finish: Callable[[Lockfile], Lockfile]) -> int:
        """Write the next snapshot, then swap the lockfile to it; both anew where an own lost write turns up."""
        with self._alone(self._committing):
            for _ in range(_ATTEMPTS):
                base = self.lockfile
                self.check()
                pointer, body = encode(base, self.run, record)
                keep_snapshot(self._store, pointer.key, body)
                with suppress(MovedError):
                    return self._write(self._store, partial(pointing, base, pointer, finish))
        raise self._unsettled()

    def _end(self, record: Record | None, finish: Callable[[Lockfile], Lockfile]) -> int:
        if record is None or self._is_free:
            return self._write(self._store, finish)
        return self._commit(record, finish)

    def _write(self, store: ObjectStore, change: Callable[[Lockfile], Lockfile]) -> int:
        """Swap in what `change` makes of the last version; return the serial that holds then.

        Raises:
            LeaseError: Someone else's write is there, or the deadline has passed.
        """
        with self._alone(self._writing):
            for _ in range(_ATTEMPTS):
                if self._is_free:
                    return self.lockfile.serial
                self.check()
                after = change(self._current.lockfile).with_beat()
                sent = self._effects.now()
                try:
                    version = store.swap(KEY, after.to_bytes(), expected=self._current.version)
                except LostRaceError:
                    self._current = self._still_ours(store, after)
                else:
                    self._current, self._sent, self._trouble = Read(after, version), sent, None
                    told = after.lease
                    note(_LOGGER, "written", status=told.status, epoch=told.epoch, beat=told.beat, serial=after.serial)
                    return after.serial
        raise self._unsettled()

    @contextmanager
    def _alone(self, lock: threading.Lock) -> Iterator[None]:
        """Be the only one in this process who does it; what hangs is waited for as long as the lease lasts."""
        while not lock.acquire(timeout=max(0.0, self.terms.give_up_s - self._age())):
            self.check()
        try:
            yield
        finally:
            lock.release()

    def _still_ours(self, store: ObjectStore, after: Lockfile) -> Read:
        """Return what we wrote, found instead of the answer: nobody else writes under our epoch.

        Raises:
            LeaseError: Someone took over, or the lockfile is gone.
        """
        try:
            found = read_lockfile(store)
        except UserError as error:
            self._lost = LeaseError(f"the lease is lost: {error.message}", hint=error.hint)
            raise self._lost from error
        before = self._current.lockfile
        if found is not None and found.lockfile.lease.epoch == before.lease.epoch:
            return found
        # Our closing write may have landed, and someone have taken the free lease since: then our state is theirs.
        is_safe = found is not None and after.state in (before.state, found.lockfile.state)
        if found is not None and is_safe and after.lease.status == "free":
            return Read(after, found.version)
        note(_LOGGER, "lost", epoch=before.lease.epoch, to_epoch=found.lockfile.lease.epoch if found else None)
        self._lost = lost_to(found, store.url)
        raise self._lost

    def _unsettled(self) -> RetryableError:
        return RetryableError(
            f"{self._store.url}/{KEY} changed under every attempt to write it", hint="Check the store, then run again."
        )
