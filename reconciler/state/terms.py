"""How long a lease lasts, and what its holder may do as it grows old."""

from __future__ import annotations

from dataclasses import dataclass

_RENEWALS = 6
_MAY_START = 60 / 90
_GIVES_UP = 75 / 90
_LONGEST_POLL_S = 5.0


@dataclass(frozen=True, slots=True)
class Terms:
    """Everything follows from the length of the lease, in seconds.

    The holder renews six times a lease, starts nothing new after two thirds of it without a renewal, and gives up
    after five sixths. Whoever waits takes over after seeing no change for all of it: the difference is the margin.
    """

    lease_s: float = 90.0

    @property
    def renew_s(self) -> float:
        """Between two renewals."""
        return self.lease_s / _RENEWALS

    @property
    def may_start_s(self) -> float:
        """Without a renewal for this long, nothing new is started."""
        return self.lease_s * _MAY_START

    @property
    def give_up_s(self) -> float:
        """Without a renewal for this long, the lease counts as lost."""
        return self.lease_s * _GIVES_UP

    @property
    def poll_s(self) -> float:
        """Between two looks at a lease that someone else holds."""
        return min(_LONGEST_POLL_S, self.lease_s / 10)
