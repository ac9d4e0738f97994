"""A catalog that is not there: a new cluster has none yet, and one whose objects tell of a catalog has lost it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from reconciler.embedded.jsonobjects import RESTORE_HINT
from reconciler.embedded.keys import CATALOG, GROUPS, HEADS, PAGES, TRANSACTIONS, serial_of_catalog_key
from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.objectstore.base import ObjectStore

_MADE_AFTER: Final = (HEADS, GROUPS, PAGES)
"""Nothing lies there before a topic does."""


def lost_catalog(store: ObjectStore, trace: str) -> UserError:
    """Return the error for a catalog that is gone, as `trace` tells."""
    return UserError(f"{store.url}: {lost_text(trace)}", hint=RESTORE_HINT)


def lost_text(trace: str) -> str:
    """Say that the catalog is gone, and how that is known."""
    return f"the catalog is lost: {CATALOG} is not there, and {trace}"


def trace_of_catalog(store: ObjectStore) -> str | None:
    """Return what tells that there was a catalog, `None`: nothing. A few listings, each to the first that tells."""
    return next(_traces(store), None)


def _traces(store: ObjectStore) -> Iterator[str]:
    for prefix in _MADE_AFTER:
        for listed in store.list(prefix):
            yield f"{listed.key} is"
    for listed in store.list(CATALOG.rpartition("/")[0] + "/"):
        # A large first commit that died before its swap leaves one of serial 1.
        if (serial_of_catalog_key(listed.key) or 0) > 1:
            yield f"{listed.key} is"
    for listed in store.list(TRANSACTIONS):
        if _has_written(store, listed.key):
            yield f"{listed.key} is open"


def _has_written(store: ObjectStore, key: str) -> bool:
    """Tell whether a transaction is not empty: a producer may claim its id before there is any topic."""
    stored = store.get(key)
    try:
        return stored is not None and orjson.loads(stored.body)["state"] != "empty"
    except (ValueError, KeyError, TypeError):
        return True
