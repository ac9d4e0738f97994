"""The lease as a run sees it: may something be started, and is it time to commit what is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from reconciler.effects import Effects
    from reconciler.resources.inventory import Record
    from reconciler.state.entries import Entry
    from reconciler.state.journal import Journal
    from reconciler.state.lease import Lease

_BETWEEN_COMMITS_S: Final = 60.0


class LeaseTurn:
    """A run's turn under one lease."""

    def __init__(self, lease: Lease, journal: Journal, effects: Effects) -> None:
        """Write what happens to `journal`, and commit under `lease`."""
        self._lease = lease
        self._journal = journal
        self._effects = effects
        self._committed_at = effects.now()

    @property
    def may_start(self) -> bool:
        """Tell whether a new call may be started: the lease is young enough that it cannot outlive it."""
        return self._lease.may_start

    def check(self) -> None:
        """Return while the lease is surely ours.

        Raises:
            LeaseError: It is lost.
        """
        self._lease.check()

    async def write(self, entries: Sequence[Entry]) -> None:
        """Return once `entries` are durable; what follows them may then begin."""
        await self._journal.append(entries)
        if not self._lease.may_start:  # the state was away for long: a call that begins now must not outlive the lease
            await self._lease.renew()

    async def checkpoint(self, record: Record) -> None:
        """Commit what is done so far, once a minute."""
        if self._effects.now() - self._committed_at < _BETWEEN_COMMITS_S:
            return
        await self._lease.commit(dict(record))
        self._committed_at = self._effects.now()
