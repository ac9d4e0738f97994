"""Object storage and the roots of clusters lie apart: a sweep deletes what its own cluster does not name."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import CLUSTER
from reconciler.errors import ReconcilerError, UserError
from reconciler.objectstore.directory import DirectoryStore
from reconciler.resources.locations import is_overlapping

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.objectstore.base import ObjectStore

APART: Final = "Give objectStorage a location of its own, beside the roots of clusters, never in or around one."
_FOLDER: Final = "file://"
_MARK: Final = b'"reconciler.cluster/'
_LOOKED_AT: Final = 1000
"""One page of a listing."""


def check_place(storage: ObjectStore, root: str | None = None) -> None:
    """Refuse as object storage what is, lies in or holds the root of a cluster, as far as that can be told.

    `root`: the URL of the cluster that is to tier there. A GET, and one page of a LIST.

    Raises:
        UserError: It is one, or cannot be read.
    """
    if root is not None and root.startswith(_FOLDER) and is_overlapping(root, storage.url):
        raise UserError(
            f"{storage.url} and the root of the cluster, {root}, are one place or lie in each other", hint=APART
        )
    if storage.get(CLUSTER) is not None:
        raise UserError(f"{storage.url} is the root of a cluster: it holds {CLUSTER}", hint=APART)
    for listed in islice(storage.list(""), _LOOKED_AT):
        if listed.key.endswith(f"/{CLUSTER}") and _is_cluster(storage, listed.key):
            raise UserError(f"{storage.url} holds the root of a cluster: {listed.key}", hint=APART)
    above = next(_roots_above(storage), None)
    if above is not None:
        raise UserError(f"{storage.url} lies in the root of a cluster, {above.url}", hint=APART)


def _roots_above(storage: ObjectStore) -> Iterator[ObjectStore]:
    """Yield the roots that a folder lies in; of a bucket only what the plan is told can be known."""
    if storage.url.startswith(_FOLDER):
        for folder in Path(storage.url.removeprefix(_FOLDER)).parents:
            with suppress(ReconcilerError):  # Who may not look there cannot tell.
                if _is_cluster(DirectoryStore(folder), CLUSTER):
                    yield DirectoryStore(folder)


def _is_cluster(store: ObjectStore, key: str) -> bool:
    found = store.get(key)  # Others may have files of that name.
    return found is not None and _MARK in found.body
