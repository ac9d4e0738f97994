"""Files of the remote tier: a segment is a Parquet file as a part is, and its index is the footer of that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.embedded.keys import index_key, segment_key
from reconciler.embedded.partition.parts import PART_BYTES, PartWriter
from reconciler.errors import DamagedObjectError

if TYPE_CHECKING:
    from reconciler.embedded.producing.admission import Rules
    from reconciler.embedded.remote.manifests.manifest import RemotePartition
    from reconciler.objectstore.base import ObjectStore

_TAIL: Final = 8
"""What a Parquet file ends with: the length of its footer, and four letters."""
_LIKELY_FOOTER: Final = 64 * 1024
_MAGIC: Final = b"PAR1"


class SegmentWriter(PartWriter):
    """Writes records as a remote segment, with its index."""

    def __init__(
        self,
        storage: ObjectStore,
        remote: RemotePartition,
        epoch: int,
        *,
        compression: str = "producer",
        kms_key_id: str | None = None,
    ) -> None:
        super().__init__(
            storage, str(remote), remote.number, compression=compression, limit=PART_BYTES, kms_key_id=kms_key_id
        )
        self._remote = remote
        self._epoch = epoch

    @classmethod
    def under(cls, storage: ObjectStore, rules: Rules, remote: RemotePartition, epoch: int) -> SegmentWriter:
        """Return what writes records of a topic as its configs and its key have them."""
        return cls(storage, remote, epoch, compression=rules.compression, kms_key_id=rules.kms_key_id)

    def _key(self, offsets: tuple[int, int], stored_bytes: int) -> str:
        return segment_key(self._remote.place, offsets, stored_bytes, self._epoch)

    def _put_file(self, key: str, body: memoryview) -> None:
        super()._put_file(key, body)
        footer = bytes(body[-footer_bytes(bytes(body[-_TAIL:])) :])
        self._store.put(index_key(key), footer, kms_key_id=self._kms_key_id)


def footer_of(store: ObjectStore, key: str, size: int) -> bytes:
    """Return the footer of a Parquet file, all that is needed to read any row group of it: one request, or two.

    Raises:
        MissingObjectError: The file is not there.
        DamagedObjectError: It is no Parquet file.
    """
    start = max(0, size - _LIKELY_FOOTER)
    tail = store.get_range(key, start, size - start)
    if len(tail) != size - start or not tail.endswith(_MAGIC) or footer_bytes(tail) > size:
        why = f"it does not end as a Parquet file of {size:,} bytes does"
        message = f"{store.url}: object {key} is damaged: {why}"
        error = DamagedObjectError(message, hint="Restore it from a copy of the store.")
        error.key, error.url, error.why = key, store.url, why
        raise error
    wanted = footer_bytes(tail)
    return tail[-wanted:] if wanted <= len(tail) else store.get_range(key, size - wanted, wanted)


def footer_bytes(tail: bytes) -> int:
    """Return how many bytes the footer of a Parquet file takes, by the file's last eight."""
    return int.from_bytes(tail[-_TAIL:-4], "little") + _TAIL
