"""Reads our Markdown files as the tests of this folder need them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: where it begins, its language, its text."""

    file: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def files() -> list[Path]:
    found = [*ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")]
    for folder in ("docs", "examples"):
        found.extend(path for path in (ROOT / folder).rglob("*.md") if not _is_hidden(path))
    return sorted(found)


def blocks(*languages: str) -> Iterator[Block]:
    for file in files():
        text = file.read_text(encoding="utf-8")
        for match in _FENCE.finditer(text):
            if match[1] in languages:
                yield Block(file, text.count("\n", 0, match.start()) + 1, match[1], match[2])


def without_blocks(file: Path) -> str:
    """Return a file's text without its fenced blocks."""
    return _FENCE.sub("", file.read_text(encoding="utf-8"))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(ROOT).parts)
