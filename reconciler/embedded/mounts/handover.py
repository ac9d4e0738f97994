"""What a migration works with, and manifests that change owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.embedded.tiered.manifest import Manifest, manifest_register, parse_manifest
from reconciler.embedded.tiered.remote_tier import RemoteTier, remote_partition
from reconciler.errors import LostRaceError, RetryableError, UnansweredError, UserError
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import MigrationEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.catalog.tiering_state import TopicLocation
    from reconciler.embedded.maintenance.passes import Spread, Upkeep
    from reconciler.objectstore.base import ObjectStore
    from reconciler.objectstore.register import ReadRegister


@dataclass(frozen=True)
class MigrationContext:
    """One cluster and its object storage, for the process that drives a migration. Safe to use from any thread."""

    store: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    remote: RemoteTier
    upkeep: Upkeep
    now_ms: Callable[[], int]
    may_go_on: Callable[[], None] = lambda: None
    """Asked before every write, from any thread; may raise: whoever comes next goes on."""
    spread: Spread | None = None
    """Where much is uploaded."""
    flushed: Callable[[int], object] = lambda _stored: None
    """Told, from any thread, of stored bytes that were uploaded."""

    @property
    def storage(self) -> ObjectStore:
        """The object storage."""
        return self.remote.storage


# Manifests that change hands, all those of a topic: what is swapped was read before it was asked whether we may.
#
# Whoever sleeps between asking and swapping finds a manifest that has changed, reads it once more and asks once more.
# So nobody who wakes up late takes anything, be the topic another's by then, or here again.


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

    def _read(self, number: int) -> tuple[int, ReadRegister | None]:
        return number, manifest_register(self.storage, remote_partition(self.location, number)).read()

    def _swapped(self, number: int, held: ReadRegister | None, change: Change) -> Manifest | None:
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


# Drivers that somebody else overtook: whatever keeps them from their work is no news, for it has been done.


class OvertakenError(Exception):
    """Somebody else brought the migration on meanwhile: there is nothing left to do. Never leaves this package."""


def check_current(catalog: Catalog, number: int, begun: MigrationEntry) -> None:
    """Go on only while a migration is in the state in which it was read; it never comes back to one.

    Raises:
        OvertakenError: It is not.
    """
    found = catalog.migrations.get(str(number))
    if found is None or (found.state, found.claim) != (begun.state, begun.claim):
        raise OvertakenError


@contextmanager
def until_overtaken(catalog: CatalogRegister, number: int, begun: MigrationEntry) -> Iterator[None]:
    """Do the work of a state; what goes wrong with it after another process has done it is left unsaid."""
    with suppress(OvertakenError):
        try:
            yield
        except (UserError, RetryableError):
            check_current(catalog.read(), number, begun)
            raise
