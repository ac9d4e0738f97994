"""A store behind a client that loses answers and retries, as every HTTP client does."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from reconciler.errors import RetryableError

if TYPE_CHECKING:
    from reconciler.objectstore.base import ListedObject, ObjectStore, StoredObject, Version


class LossyStore:
    """Every swap (of `key`) lands and its answer is lost; what the client does then is `retries`.

    `meanwhile` is called between the landing and what follows: it is where another writer gets in.
    """

    def __init__(
        self,
        inner: ObjectStore,
        *,
        key: str | None = None,
        retries: bool = True,
        meanwhile: Callable[[], None] | None = None,
    ) -> None:
        self.inner = inner
        self.key = key
        self.retries = retries
        self.meanwhile = meanwhile
        self.swaps = 0

    @property
    def url(self) -> str:
        return self.inner.url

    @property
    def can_encrypt(self) -> bool:
        return self.inner.can_encrypt

    def read_clock_ms(self) -> int:
        return self.inner.read_clock_ms()

    def get(self, key: str) -> StoredObject | None:
        return self.inner.get(key)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.inner.get_range(key, start, length)

    def put(self, key: str, body: bytes | memoryview, *, kms_key_id: str | None = None) -> None:
        self.inner.put(key, body, kms_key_id=kms_key_id)

    def swap(self, key: str, body: bytes, *, expected: Version | None) -> Version:
        if self.key not in {None, key}:
            return self.inner.swap(key, body, expected=expected)
        self.swaps += 1
        self.inner.swap(key, body, expected=expected)
        if self.meanwhile is not None:
            intrude, self.meanwhile = self.meanwhile, None
            intrude()
        if not self.retries:
            message = "no answer from the store"
            raise RetryableError(message, hint="Run it again.")
        return self.inner.swap(key, body, expected=expected)

    def copy_from(self, key: str, source: ObjectStore, source_key: str, *, kms_key_id: str | None = None) -> None:
        self.inner.copy_from(key, source, source_key, kms_key_id=kms_key_id)

    def list(self, prefix: str) -> Iterator[ListedObject]:
        return self.inner.list(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def find_violated_conditions(self) -> Sequence[str]:
        return self.inner.find_violated_conditions()
