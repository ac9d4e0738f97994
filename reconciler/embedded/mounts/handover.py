"""What a migration works with, and how a driver stops once another process has done its work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.errors import RetryableError, UserError

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import MigrationEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.maintenance.passes import Spread, Upkeep
    from reconciler.objectstore.base import ObjectStore


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


class OvertakenError(Exception):
    """Another process has moved the migration on, so nothing is left to do. Never leaves this package."""


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
    """Do the work of a state, and suppress its errors after another process has done it."""
    with suppress(OvertakenError):
        try:
            yield
        except (UserError, RetryableError):
            check_current(catalog.read(), number, begun)
            raise
