"""The hidden line by which a comment of ours is found again, and a text that fits into a comment.

A marker is the first line of what `--format markdown` prints: `<!-- reconciler:plan workspace=shop environment=prod
digest=7c41… items=3 -->`. Fields that a reader does not know are passed over, and those that an older version did not
write are absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.runtime.text import count_text, visible

_MARKER: Final = re.compile(r"<!-- reconciler:([a-z-]+)((?: [a-z]+=[A-Za-z0-9._-]+)*) -->")
OUTDATED: Final = "outdated"
"""What stands in place of the command in a comment that was folded away: it is found no more."""


@dataclass(frozen=True, slots=True)
class Marker:
    """What a comment is about. One comment is kept for each command, workspace and environment."""

    command: str
    workspace: str
    environment: str | None = None
    digest: str = ""
    items: int | None = None
    """How many things are reported: actions, findings, errors. `None`: an older version, which did not say."""
    approvers: int = 0
    """How many people must approve what is reported."""

    @property
    def line(self) -> str:
        """The hidden line."""
        fields = {
            "workspace": comment_safe(self.workspace),
            "environment": comment_safe(self.environment or ""),
            "digest": self.digest,
            "items": "" if self.items is None else str(self.items),
            "approvers": str(self.approvers or ""),
        }
        said = "".join(f" {name}={value}" for name, value in fields.items() if value)
        return f"<!-- reconciler:{self.command}{said} -->"

    def is_of(self, text: str) -> bool:
        """Tell whether a text is about the same command, workspace and environment."""
        other = marker_of(text)
        return other is not None and _place(other) == _place(self)

    def is_in(self, text: str) -> bool:
        """Tell whether a line of a text says so: people write above what they find."""
        return any(line.startswith("<!--") and self.is_of(line) for line in text.splitlines())


def marker_of(text: str) -> Marker | None:
    """Return the marker in the first line of a text; `None`: there is none."""
    found = _MARKER.fullmatch(text.partition("\n")[0].strip())
    if found is None:
        return None
    fields = dict(pair.split("=", 1) for pair in found[2].split())
    if "workspace" not in fields:
        return None
    items, approvers = fields.get("items", ""), fields.get("approvers", "")
    return Marker(
        found[1],
        fields["workspace"],
        fields.get("environment"),
        fields.get("digest", ""),
        int(items) if items.isdecimal() else None,
        int(approvers) if approvers.isdecimal() else 0,
    )


def owing_message(text: str) -> str:
    """Return a text whose marker says that a message about it is still to be sent."""
    first, end, rest = text.partition("\n")
    return f"{first.removesuffix('-->')}message=owed -->{end}{rest}"


def comment_safe(text: str) -> str:
    """Return `text` for a hidden HTML comment: nothing that could end it."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", visible(text)).replace("--", "-_")


def _place(marker: Marker) -> tuple[str, str, str]:
    return marker.command, comment_safe(marker.workspace), comment_safe(marker.environment or "")


# A text that fits.


_FENCE: Final = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_FOLD: Final = re.compile(r"<(/?)details\b", re.IGNORECASE)
_ROOM: Final = 200
"""For the sentence that says what is missing."""


def fitted(text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Return a text of at most `limit` by `size`: one that is longer is cut at a line, and says so at its end.

    Folds and blocks of code that are open where it is cut are closed.
    """
    if size(text) <= limit:
        return text
    lines = text.splitlines(keepends=True)
    kept, closing, used = 0, "", 0
    open_parts: list[str] = []
    for position, each in enumerate(lines):
        used += size(each)
        _follow(each, open_parts)
        ends = "".join(f"{end}\n" for end in reversed(open_parts))
        if used + size(ends) + _ROOM > limit:
            break
        kept, closing = position + 1, ends
    missing = count_text(len(lines) - kept)
    body = "".join(lines[:kept])
    gap = "" if not body or body.endswith("\n") else "\n"
    said = f"**The rest does not fit here: {missing} more lines. The log of the job has them all.**"
    return f"{body}{gap}{closing}\n{said}\n"


def _follow(line: str, open_parts: list[str]) -> None:
    """Keep account of what is open after a line: how each fold and block of code ends, the innermost last."""
    fence = _FENCE.match(line)
    if open_parts and open_parts[-1] != _END_OF_FOLD:
        if fence and fence[1].startswith(open_parts[-1]) and not fence[2].strip():
            open_parts.pop()
        return
    if fence:
        open_parts.append(fence[1])
        return
    for found in _FOLD.finditer(line):
        if not found[1]:
            open_parts.append(_END_OF_FOLD)
        elif open_parts:
            open_parts.pop()


_END_OF_FOLD: Final = "</details>"


def folded_away(marker: Marker, text: str, limit: int, size: Callable[[str], int] = len) -> str:
    """Return an older comment as a fold that keeps its text, under a line by which it is not found any more."""
    head = f"{Marker(OUTDATED, marker.workspace, marker.environment, marker.digest).line}\n"
    start = f"{head}<details>\n<summary>An older result; there is a newer comment.</summary>\n\n"
    lines: Sequence[str] = text.splitlines(keepends=True)[1:]
    room = limit - size(start) - size(_END_OF_FOLD) - 2
    return f"{start}{fitted(''.join(lines), room, size).rstrip()}\n\n{_END_OF_FOLD}\n"
