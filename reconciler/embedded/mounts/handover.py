"""Context of a migration, and detection of other processes that drive it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from reconciler.embedded.tiered.remote_tier import RemoteTier
from reconciler.errors import RetryableError, UserError
from reconciler.runtime.dataclass import dataclass

if TYPE_CHECKING:
    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.model import MigrationEntry
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.embedded.maintenance.passes import Spread, Upkeep
    from reconciler.objectstore.base import ObjectStore


@dataclass(frozen=True)
class MigrationContext:
    """Resources to drive a migration. Thread-safe."""

    store: ObjectStore
    catalog: CatalogRegister
    cluster_id: str
    remote: RemoteTier
    upkeep: Upkeep
    now_ms: Callable[[], int]
    may_go_on: Callable[[], None] = lambda: None
    """Called before every write, from any thread; may raise."""
    spread: Spread | None = None
    flushed: Callable[[int], object] = lambda _stored: None
    """Called with the stored bytes of each upload."""

    @property
    def storage(self) -> ObjectStore:
        """The remote tier's object storage."""
        return self.remote.storage


class OvertakenError(Exception):
    """Another process has moved the migration to a later state."""


def check_current(catalog: Catalog, number: int, begun: MigrationEntry) -> None:
    """Raise `OvertakenError` if a migration has left the state of `begun`."""
    current = catalog.migrations.get(str(number))
    if current is None or (current.state, current.claim) != (begun.state, begun.claim):
        raise OvertakenError


@contextmanager
def suppress_if_overtaken(catalog: CatalogRegister, number: int, begun: MigrationEntry) -> Iterator[None]:
    """Suppress errors if another process has continued the migration."""
    with suppress(OvertakenError):
        try:
            yield
        except (UserError, RetryableError):
            check_current(catalog.read(), number, begun)
            raise
