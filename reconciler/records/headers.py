"""Names of headers: the bytes that brokers keep, as the text that a column, a file and JSON can hold.

Kafka says that a name is UTF-8 and checks it nowhere. A byte that is no UTF-8 becomes one of 128 characters of a
private area, `U+10F700` and the byte; where a name has such a character itself, its bytes are written like that, too.
So every name has a text, no two have the same, and nearly all names are their own text.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Sequence

_ESCAPED: Final = re.compile("[\U0010f780-\U0010f7ff]")
_MARKS: Final = b"\xf4\x8f\x9e", b"\xf4\x8f\x9f"
"""How those characters begin in UTF-8."""
_TO_TEXT: Final = {0xDC00 + byte: 0x10F700 + byte for byte in range(0x80, 0x100)}
_TO_BYTES: Final = {text: surrogate for surrogate, text in _TO_TEXT.items()}


def text_of(name: bytes) -> str:
    """Return the text of a name."""
    found = name.decode("utf-8", "surrogateescape")
    if any(mark in name for mark in _MARKS):
        found = _ESCAPED.sub(lambda one: one[0].encode().decode("ascii", "surrogateescape"), found)
    return found.translate(_TO_TEXT)


def name_of(text: str) -> bytes:
    """Return the name that a text stands for."""
    return text.encode() if text.isascii() else text.translate(_TO_BYTES).encode("utf-8", "surrogateescape")


def decoded(text: str) -> str:
    """Return the name that a text stands for as Python has names of files, `surrogateescape`."""
    return text if text.isascii() else name_of(text).decode("utf-8", "surrogateescape")


def texts_of(names: Sequence[str | bytes]) -> pa.Array[Any]:
    """Return a column of names as a client gives them: decoded, or as bytes where it cannot decode them."""
    if bytes in set(map(type, names)):
        return pa.array([text_of(name if isinstance(name, bytes) else name.encode()) for name in names], pa.string())
    found: pa.Array[Any] = pa.array(names, pa.string())
    return pa.array([text_of(name.encode()) for name in found.to_pylist()], pa.string()) if has_marks(found) else found


def has_marks(texts: pa.Array[Any]) -> bool:
    """Tell whether one of the texts is perhaps another than its name, decoded."""
    return any(_is_in(mark, texts) for mark in _MARKS)


def has_nul(texts: pa.Array[Any]) -> bool:
    """Tell whether one of the names perhaps has the byte 0, at which C ends a text."""
    return _is_in(b"\0", texts)


def _is_in(part: bytes, texts: pa.Array[Any]) -> bool:
    found = texts.buffers()[2] if len(texts) else None
    return found is not None and part in found.to_pybytes()
