"""What a plain scalar means: the YAML 1.2 core schema, and nothing of YAML 1.1.

Only `true` and `false` are booleans, `012` is twelve, `1:30` and `2026-01-31` are texts.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, TypeAlias

Scalar: TypeAlias = str | int | float | bool | None

_WORDS: Final[dict[str, bool | float | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_FIRST: Final = frozenset("0123456789+-.")
_MAX_DIGITS: Final = 40
"""Longer rows of digits are texts: no field holds such a number, and reading one takes time."""

_INTEGER: Final = re.compile(r"[-+]?[0-9]+")
_OCTAL: Final = re.compile(r"0o[0-7]+")
_HEXADECIMAL: Final = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT: Final = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")


@lru_cache(maxsize=8192)
def resolve(text: str) -> Scalar:
    """Return what a plain (unquoted) scalar means.

    Manifests say the same few words over and over: those are judged once, and share one text in memory.
    """
    if text in _WORDS:
        return _WORDS[text]
    if text[0] not in _FIRST or len(text) > _MAX_DIGITS:
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if _HEXADECIMAL.fullmatch(text):
        return int(text, 16)
    if _OCTAL.fullmatch(text):
        return int(text, 8)
    return text


def is_text(text: str) -> bool:
    """Tell whether `text`, written without quotes, would be read as the text it is."""
    return isinstance(resolve(text), str)


def kind_of_value(value: object) -> str:
    """Return what a value is, in words for people."""
    match value:
        case None:
            return "nothing"
        case bool():
            return f"the boolean {'true' if value else 'false'}"
        case int() | float():
            return f"the number {value}"
        case str():
            return f"the text {_short(value)}"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


_SHOWN: Final = 60


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…")
