"""Clusters, batches and what is read back, for the tests of the embedded cluster."""

from __future__ import annotations

import copy
import gzip
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from reconciler.embedded.cluster import EmbeddedCluster
from reconciler.objectstore.memory import MemoryStore
from reconciler.records.log import OffsetRange, TopicLog
from reconciler.records.schema import RECORD_SCHEMA

if TYPE_CHECKING:
    from reconciler.objectstore.base import ObjectStore


NOW = 1_700_000_000_000


def ids() -> Any:
    """Return what makes ids that are told apart easily."""
    numbers = iter(range(1, 1 << 32))  # since Python 3.14 a count cannot be pickled
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012}"


def cluster_in(store: ObjectStore, *, now_ms: int = NOW) -> EmbeddedCluster:
    return EmbeddedCluster.create(store, now_ms=lambda: now_ms, new_id=ids())


def values(*contents: bytes | str | None, **columns: list[Any]) -> pa.RecordBatch:
    """Return a batch to append: `value`, and any other columns of records."""
    encoded = [content.encode() if isinstance(content, str) else content for content in contents]
    return pa.RecordBatch.from_pydict({"value": pa.array(encoded, pa.binary()), **columns})


def numbered(first: int, count: int, *, partition: int = 0) -> pa.RecordBatch:
    """Return records as they lie in a log: value, key and time tell the offset."""
    offsets = range(first, first + count)
    rows = [
        {
            "partition": partition,
            "offset": offset,
            "timestamp_ms": NOW + offset,
            "timestamp_type": 0,
            "key": b"k%d" % offset if offset % 3 else None,
            "value": b"v%d" % offset if offset % 5 else b"",
            "headers": [{"key": "n", "value": b"%d" % offset}] if offset % 2 else [],
        }
        for offset in offsets
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RECORD_SCHEMA)


def rows_of(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    """Return records as rows, having seen that each batch is one of records."""
    rows: list[dict[str, Any]] = []
    for batch in batches:
        assert batch.schema.equals(RECORD_SCHEMA)
        rows += batch.to_pylist()
    return rows


def read(log: TopicLog, partition: int = 0, start: int = 0, stop: int = 1 << 40) -> list[dict[str, Any]]:
    return rows_of(log.read(partition, OffsetRange(start, stop)))


def contents(log: TopicLog, partition: int = 0) -> list[tuple[int, bytes | None]]:
    return [(row["offset"], row["value"]) for row in read(log, partition)]


# The objects of a cluster, and what hands can make of them.


Place = tuple[str | int, ...]

WRONG: tuple[Any, ...] = (..., None, "x", -7, 1.5, [], {}, [1], {"a": 1}, True)
"""What somebody may have written in the place of something; `...`: it was taken away."""
BODIES = (b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b'{"format": 3}')


def contents_of(store: ObjectStore) -> dict[str, bytes]:
    found = ((listed.key, store.get(listed.key)) for listed in store.list(""))
    return {key: stored.body for key, stored in found if stored is not None}


def stored(objects: dict[str, bytes]) -> ObjectStore:
    store = MemoryStore()
    for key, body in objects.items():
        store.put(key, body)
    return store


def places(value: Any, at: Place = ()) -> Iterator[Place]:
    """Yield every place in a JSON value, of a list the first and the last."""
    yield at
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    if isinstance(value, list) and value:
        keys = sorted({0, len(value) - 1})
    for key in keys:
        yield from places(value[key], (*at, key))


def edited(value: Any, at: Place, wrong: Any) -> Any:
    """Return it with something else at one place."""
    changed = copy.deepcopy(value)
    holder = changed
    for key in at[:-1]:
        holder = holder[key]
    if wrong is ...:
        del holder[at[-1]]
    else:
        holder[at[-1]] = wrong
    return changed


def edits(body: bytes, wrong: Callable[[], list[Any]]) -> Iterator[bytes]:
    """Yield a JSON object with other things in the place of each of its own."""
    is_zipped = body.startswith(b"\x1f\x8b")
    value = orjson.loads(gzip.decompress(body) if is_zipped else body)
    for at in places(value):
        for what in wrong() if at and at[0] != "marks" else []:
            written = orjson.dumps(edited(value, at, what))
            yield gzip.compress(written) if is_zipped else written


def kinds(objects: dict[str, bytes]) -> dict[str, str]:
    """Return one object of each kind: what it is, and its key."""
    pages = sorted((key for key in objects if key.startswith("pages/")), key=lambda key: b'"pages"' in objects[key])
    heads = sorted((key for key in objects if key.startswith("heads/")), key=lambda key: len(objects[key]))
    return {
        "cluster file": "cluster.json",
        "catalog": "catalog/head.json",
        "snapshot": next(key for key in objects if key.endswith(".json.gz")),
        "head with a transaction": heads[0],
        "head with pages": heads[-1],
        "page": pages[0],
        "page of pages": pages[-1],
        "group": "groups/readers.json",
        "transaction": "transactions/checkout.json",
    }
