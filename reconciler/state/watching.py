"""Judge whether a lease has expired: by seeing no change for all of it, on one's own clock alone."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.state.lockfile import Lockfile


@dataclass(slots=True)
class Watch:
    """What one who waits has seen of a lease. Times are seconds of its own clock, never anyone else's."""

    nonce: str | None = None
    since: float = 0.0

    def idle_s(self, lockfile: Lockfile, *, asked: float, answered: float) -> float:
        """Return for how long the lockfile has surely not changed, given when it was asked for and arrived.

        It may have changed just before the first answer arrived, and was surely unchanged when last asked for.
        """
        if lockfile.nonce != self.nonce:
            self.nonce, self.since = lockfile.nonce, answered
        return max(0.0, asked - self.since)
