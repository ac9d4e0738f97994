"""What users named, made safe to print: nothing in a name moves a cursor, changes a colour or reorders a line."""

from __future__ import annotations

import re
from typing import Final

# Controls (C0, DEL, C1), line and paragraph separators, everything that changes the direction or the width of
# what follows it, what is no character, and halves of characters that no encoding can write.
_UNSAFE: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)


def visible(text: str) -> str:
    r"""Return `text` with what cannot be seen written out: an escape becomes `\x1b`. One line stays one line."""
    return _UNSAFE.sub(_written_out, text) if not text.isascii() or not text.isprintable() else text


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    named = {9: r"\t", 10: r"\n", 13: r"\r"}
    return named.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - one byte
