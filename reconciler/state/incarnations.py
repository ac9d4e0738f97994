"""Which live things the state is about, read without reading what they are: a fraction of the time."""

from __future__ import annotations

import gzip
import zlib
from hashlib import sha256
from typing import TYPE_CHECKING

import orjson

from reconciler.resources.address import Address
from reconciler.state.lockfile import read_lockfile
from reconciler.state.snapshots import snapshot_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.objectstore.base import ObjectStore
    from reconciler.state.lockfile import Owner


def read_incarnations(store: ObjectStore, *, owner: Owner | None, kind: str) -> Mapping[Address, str | None]:
    """Return the incarnation of every recorded resource of a kind; empty where nothing was ever applied.

    Raises:
        UserError: The state is somebody else's, lost, damaged, or written by a newer version.
    """
    found = read_lockfile(store, owner=owner)
    if found is None or found.lockfile.state is None:
        return {}
    pointer = found.lockfile.state
    stored = store.get(pointer.key)
    if stored is not None and sha256(stored.body).hexdigest() == pointer.sha256:
        try:
            resources = orjson.loads(gzip.decompress(stored.body))["resources"]
            return {
                Address(entry["address"]): entry["incarnation"]
                for entry in resources
                if entry["address"].startswith(f"{kind}/")
            }
        except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError):
            pass  # read in full below, which says what is wrong with it
    record = snapshot_of(store, found.lockfile).record
    return {address: each.incarnation for address, each in record.items() if address.startswith(f"{kind}/")}
