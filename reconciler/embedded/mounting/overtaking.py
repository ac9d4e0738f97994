"""Drivers that somebody else overtook: whatever keeps them from their work is no news, for it has been done."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from reconciler.errors import RetryableError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.migrationentries import MigrationEntry
    from reconciler.embedded.catalog.tables import Catalog


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
    """Do the work of a state; what goes wrong with it after somebody else has done it is left unsaid."""
    with suppress(OvertakenError):
        try:
            yield
        except (UserError, RetryableError):
            check_current(catalog.read(), number, begun)
            raise
