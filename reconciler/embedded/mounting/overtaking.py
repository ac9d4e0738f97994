"""Drivers that somebody else overtook: whatever keeps them from their work is no news, for it has been done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from reconciler.errors import RetryableError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.embedded.catalog.commits import CatalogRegister
    from reconciler.embedded.catalog.entries import MigrationEntry


class OvertakenError(Exception):
    """Somebody else brought the migration on meanwhile: there is nothing left to do. Never leaves this package."""


def is_overtaken(catalog: CatalogRegister, number: int, begun: MigrationEntry) -> bool:
    """Tell whether a migration has left the state it was in when it was read; it never comes back to one."""
    found = catalog.read().migrations.get(str(number))
    return found is None or (found.state, found.claim) != (begun.state, begun.claim)


def check_current(catalog: CatalogRegister, number: int, begun: MigrationEntry) -> None:
    """Go on only while a migration is in the state in which it was read.

    Raises:
        OvertakenError: It is not.
    """
    if is_overtaken(catalog, number, begun):
        raise OvertakenError


@contextmanager
def until_overtaken(catalog: CatalogRegister, number: int, begun: MigrationEntry) -> Iterator[None]:
    """Do the work of a state; what goes wrong with it after somebody else has done it is left unsaid."""
    try:
        yield
    except OvertakenError:
        pass
    except (UserError, RetryableError):
        if not is_overtaken(catalog, number, begun):
            raise
