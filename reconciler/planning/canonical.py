"""Canonical JSON and fingerprints: sorted keys, no floats, UTF-8; the same value always gives the same bytes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from reconciler.planning.actions import Value

_OPTIONS: Final = orjson.OPT_SORT_KEYS


def canonical(value: object) -> bytes:
    """Return the canonical JSON of plain values."""
    return orjson.dumps(value, option=_OPTIONS)


def fingerprint(value: object) -> str:
    """Return `sha256:…` of the canonical JSON of a value."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def plain(value: Value | object) -> Any:
    """Return a value as JSON has it: mappings as objects, tuples as lists."""
    match value:
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case tuple() | list():
            return [plain(item) for item in value]
        case _:
            return value
