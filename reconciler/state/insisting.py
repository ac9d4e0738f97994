"""A write of the state where nobody answers: tried again for as long as the lease stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from reconciler.errors import MendFirstError, RetryableError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.effects import Effects

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0


async def insist(effects: Effects, write: Callable[[], T]) -> T:
    """Call `write` until it gets through; what is refused is refused at once.

    `write` may have landed unanswered, so it finds its own work when called again; and it looks at the lease first,
    whose loss ends this.

    Raises:
        LeaseError: It was lost meanwhile.
        StoppedError: Somebody asked for the end.
        ReconcilerError: Trying again is of no use.
    """
    pause = _FIRST_PAUSE_S
    while True:
        try:
            return await effects.call(write)
        except MendFirstError:
            raise
        except RetryableError:
            await effects.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)
