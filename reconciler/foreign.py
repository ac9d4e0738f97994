"""Text of others made safe to show: names, contents, and what stores, brokers and libraries say.

Nothing in it moves a cursor, changes a colour, reorders a line, begins one, or is taken for a command by what reads the
log of a pipeline (`::error::` at the beginning of a line, `##[…]` and `##vso[…]` anywhere).
"""

from __future__ import annotations

import re
from typing import Final

# Controls (C0, DEL, C1), line and paragraph separators, everything that changes the direction or the width of
# what follows it, what is no character, and halves of characters that no encoding can write.
_HIDDEN: Final = (
    "\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
)
_UNSAFE: Final = re.compile(f"[\x00-\x1f{_HIDDEN}]")
_IN_JSON: Final = re.compile(f"[{_HIDDEN}]")
_COMMAND: Final = re.compile(r"^((?:\s|\x1b\[[0-9;]*m)*)::|##(?=\[|vso\[)", re.MULTILINE)
_COMMANDS: Final = ("::", "##[", "##vso[")
_LONGEST: Final = 2_000
"""Characters of one message of others; a page of HTML is none."""


def visible(text: str) -> str:
    r"""Return `text` with what cannot be seen written out: an escape becomes `\x1b`. One line stays one line."""
    return _UNSAFE.sub(_written_out, text) if not text.isascii() or not text.isprintable() else text


def one_line(text: str) -> str:
    """Return a message of others as a part of one line of ours: without lines of its own, and not without end."""
    found = " ".join(text.split())
    return found if len(found) <= _LONGEST else f"{found[:_LONGEST]} …"


def without_commands(text: str) -> str:
    """Return text of many lines so that no pipeline takes one of them for a command of its own."""
    return _COMMAND.sub(_disarmed, text) if any(each in text for each in _COMMANDS) else text


def json_shown(body: bytes) -> bytes:
    r"""Return JSON that says the same and may be shown: what cannot be seen is an escape, as `\u202e`."""
    if not body.isascii() or b"\x7f" in body:
        body = _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", body.decode()).encode()
    return body.replace(b"##[", b"#\\u0023[").replace(b"##vso[", b"#\\u0023vso[")


def _disarmed(match: re.Match[str]) -> str:
    return "#\\x23" if match[1] is None else f"{match[1]}\\x3a:"


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    named = {9: r"\t", 10: r"\n", 13: r"\r"}
    return named.get(code) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")  # noqa: PLR2004 - one byte
