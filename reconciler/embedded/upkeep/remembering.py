"""What a job of upkeep keeps for its next pass, in `runner/<job>.json.gz`: a cache, which may be lost at any time."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.embedded.keys import runner_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.objectstore.base import ObjectStore

_FORMAT: Final = "reconciler.runner/1"


def remembered(store: ObjectStore, job: str) -> tuple[dict[str, list[Any]], dict[str, Any]]:
    """Return the rows and the notes that a job left; none where they are lost, damaged, or of another format."""
    stored = store.get(runner_key(job))
    if stored is None:
        return {}, {}
    try:
        content = orjson.loads(gzip.decompress(stored.body))
        return (content["rows"], content.get("notes", {})) if content["format"] == _FORMAT else ({}, {})
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return {}, {}  # It is only a cache: all is looked at once more.


def remember(store: ObjectStore, job: str, rows: Mapping[str, list[Any]], notes: Mapping[str, Any]) -> None:
    """Keep rows and notes for the next pass."""
    content = {"format": _FORMAT, "rows": dict(sorted(rows.items())), "notes": notes}
    store.put(runner_key(job), gzip.compress(orjson.dumps(content), compresslevel=1, mtime=0))
