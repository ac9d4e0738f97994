"""Values as YAML text on one line, quoted as the text they replace was."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from reconciler.manifests.scalars import is_text

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*")
"""Texts that mean themselves without quotes wherever they stand."""


def yaml_text(value: Any, like: str = "") -> str:
    """Return a value in flow form; `like` is the scalar it replaces."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return _quoted(value, like)
        case Mapping():
            return "{" + ", ".join(f"{_quoted(str(key))}: {yaml_text(item)}" for key, item in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(yaml_text(item) for item in value) + "]"
        case _:
            message = f"{type(value).__name__} has no place in a manifest"
            raise TypeError(message)


def key_of(text: str) -> str:
    """Return what a key as it is written means."""
    if text.startswith('"'):
        try:
            return str(json.loads(text))
        except ValueError:
            return text
    return text[1:-1].replace("''", "'") if text.startswith("'") else text


def _quoted(text: str, like: str = "") -> str:
    if like.startswith("'") and text.isprintable():
        return "'" + text.replace("'", "''") + "'"
    if _PLAIN.fullmatch(text) and is_text(text) and not like.startswith('"'):
        return text
    return json.dumps(text, ensure_ascii=False)
