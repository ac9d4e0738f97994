"""Manifests that change hands, all those of a topic: what is swapped was read before it was asked whether we may.

Whoever sleeps between asking and swapping finds a manifest that has changed, reads it once more and asks once more. So
nobody who wakes up late takes anything, be the topic somebody else's by then, or here again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.remote.manifests.manifest import manifest_register, parse_manifest
from reconciler.embedded.remote.tier import remote_partition
from reconciler.embedded.threads import side_by_side
from reconciler.errors import LostRaceError, RetryableError, UnansweredError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reconciler.embedded.catalog.tiering import TopicLocation
    from reconciler.embedded.remote.manifests.manifest import Manifest
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import Held

    Change = Callable[[Manifest], Manifest | None]
    """Returns what a manifest shall become, `None` for no change; may raise where it is in wrong hands."""

_ROUNDS: Final = 20


@dataclass(frozen=True, slots=True)
class Handing:
    """The manifests of one topic, and who says whether they may change hands."""

    storage: ObjectStore
    location: TopicLocation
    check: Callable[[], None]
    """Raises where we may not, or may not any more; asked after each reading of what is swapped then."""
    may_go_on: Callable[[], None] = lambda: None
    """Asked before every write, from any thread; may raise."""

    def __call__(self, partitions: Iterable[int], change: Change) -> dict[int, Manifest]:
        """Change the manifests there are; return them as they are then. May be repeated.

        Raises:
            UserError: One is damaged.
            RetryableError: Others were faster every time, or the store does not answer.
        """
        done: dict[int, Manifest] = {}
        waiting = list(partitions)
        for _ in range(_ROUNDS):
            found = list(side_by_side(self._read, waiting, name="hand over"))
            self.check()
            after = side_by_side(lambda one: self._swapped(*one, change), found, name="hand over")
            again = []
            for (number, held), manifest in zip(found, after, strict=True):
                if manifest is not None:
                    done[number] = manifest
                elif held is not None:
                    again.append(number)
            waiting = again
            if not waiting:
                return done
        message = f"{len(waiting)} manifests of {self.location} are being changed all the time"
        raise RetryableError(message, hint="Try again.")

    def _read(self, number: int) -> tuple[int, Held | None]:
        return number, manifest_register(self.storage, remote_partition(self.location, number)).read()

    def _swapped(self, number: int, held: Held | None, change: Change) -> Manifest | None:
        """Return the manifest as it is then; `None`: there is none, or it has to be read again."""
        if held is None:
            return None
        register = manifest_register(self.storage, remote_partition(self.location, number))
        found = parse_manifest(self.storage, register.key, held.value)
        after = change(found)
        if after is None:
            return found
        self.may_go_on()
        try:
            register.swap(held, after.to_json())
        except (LostRaceError, UnansweredError):
            return None
        return after
