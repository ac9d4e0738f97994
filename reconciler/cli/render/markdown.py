"""Markdown that a pull-request page shows as it was meant: whatever a user named stands in code, where nothing acts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from reconciler.foreign import visible


def code(text: str) -> str:
    """Return `text` as a code span. In code no HTML, mention, link or emoji is read."""
    safe = visible(text)
    if safe and "`" not in safe:
        return f"`{safe}`"
    fence = "`" * (_longest_run(safe) + 1)
    pad = " " if safe.startswith("`") or safe.endswith("`") or not safe else ""
    return f"{fence}{pad}{safe}{pad}{fence}"


def cell(text: str) -> str:
    """Return `text` as a code span inside a table, where a pipe would end the cell even in code."""
    return code(text).replace("|", "\\|") if text else ""


def row(cells: Iterable[str]) -> str:
    """Return one row of a table; the cells are markdown already."""
    return f"| {' | '.join(cells)} |"


def block(language: str, lines: Sequence[str]) -> list[str]:
    """Return a fenced block that nothing inside it can end."""
    safe = [visible(line) for line in lines]
    fence = "`" * max(3, 1 + max((_longest_run(line) for line in safe), default=0))
    return [f"{fence}{language}", *safe, fence]


def folded(summary: str, lines: Sequence[str]) -> list[str]:
    """Return a part that is shut until someone opens it. `summary` is ours."""
    return ["<details>", f"<summary>{summary}</summary>", "", *lines, "", "</details>"]


def comment_safe(text: str) -> str:
    """Return `text` for a hidden HTML comment: nothing that could end it."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", visible(text)).replace("--", "-_")


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)
