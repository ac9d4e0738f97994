"""The catalog as it is now, beside the one that was judged when a check began."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.commits import CatalogRegister
from reconciler.embedded.checking.partitions import Topics
from reconciler.errors import UserError

if TYPE_CHECKING:
    from reconciler.embedded.catalog.tables import Catalog
    from reconciler.objectstore.base import ObjectStore


class Present:
    """The topics as they are now, turned around once for each catalog. Safe from any thread."""

    def __init__(self, store: ObjectStore, serial: int | None) -> None:
        self._catalog = CatalogRegister(store)
        self._serial = serial
        self._lock = threading.Lock()
        self._turned: tuple[str, Topics] | None = None

    def topics(self) -> Topics | None:
        """Return them; `None` where the catalog cannot be read, or holds less than it did: no topic is gone then."""
        with self._lock:
            catalog = self._read()
            if catalog is None:
                return None
            if self._turned is None or self._turned[0] != catalog.id:
                self._turned = catalog.id, Topics.of(catalog)
            return self._turned[1]

    def catalog(self) -> Catalog | None:
        """Return the catalog itself, with the same exceptions."""
        with self._lock:
            return self._read()

    def _read(self) -> Catalog | None:
        try:
            catalog = None if self._serial is None else self._catalog.read()
        except UserError:
            return None
        return catalog if catalog is not None and catalog.serial >= (self._serial or 0) else None
