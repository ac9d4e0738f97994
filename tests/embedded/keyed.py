"""A store in memory that encrypts: it remembers under which key each object was put."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.errors import MissingObjectError
from reconciler.objectstore.memory import MemoryStore

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.objectstore.base import ObjectStore


class KeyedStore(MemoryStore):
    """Objects under keys of the caller's choice; what was put without one lies under the store's own, `None`."""

    def __init__(self) -> None:
        super().__init__()
        self.key_of: dict[str, str | None] = {}

    @property
    def encrypts(self) -> bool:
        return True

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        super().put(key, body)
        self.key_of[key] = kms_key_id

    def copy_in(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        found = source.get(source_key)
        if found is None:
            raise MissingObjectError(f"no object {source_key}", hint="It was deleted.")
        self.put(key, found.body, kms_key_id=kms_key_id)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            super().delete([key])
            self.key_of.pop(key, None)

    def parts(self, folder: str = "") -> dict[str, str | None]:
        """Return each part below a folder and the key it lies under."""
        return {key: kms for key, kms in sorted(self.key_of.items()) if key.startswith(f"topics/{folder}")}

    def keys_below(self, folder: str = "") -> set[str | None]:
        return set(self.parts(folder).values())
