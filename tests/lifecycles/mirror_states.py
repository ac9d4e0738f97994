"""Reads the table of a mirror's states as the facts have it: the one place where tests have it from."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_REFUSED: Final = "\N{EN DASH}"
_TABLE: Final = Path(__file__).with_suffix(".md")


@dataclass(frozen=True)
class Cell:
    """Where a verb leads from a state: the end by condition, `""` for the one without; nowhere where it is refused."""

    state: str
    verb: str
    ends: dict[str, str]


def _rows() -> list[list[str]]:
    lines = [line for line in _TABLE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "---" not in line]


def _ends(text: str) -> dict[str, str]:
    if text == _REFUSED:
        return {}
    found = [each.strip().partition(" if ") for each in text.split(";")]
    return {condition: end for end, _, condition in found}


HEADINGS, *ROWS = _rows()
VERBS: Final = tuple(HEADINGS[1:-1])
STATES: Final = tuple(row[0] for row in ROWS)
CELLS: Final = tuple(
    Cell(row[0], verb, _ends(text)) for row in ROWS for verb, text in zip(VERBS, row[1:-1], strict=True)
)
BY_ITSELF: Final = {row[0]: [end.strip() for end in row[-1].split(",") if end.strip()] for row in ROWS}


def as_lines() -> str:
    """Return the table as those of other lifecycles are written: the ends without a condition."""
    moves = {
        state: " ".join(f"{cell.verb}={cell.ends['']}" for cell in CELLS if cell.state == state and cell.ends)
        for state in STATES
    }
    return "\n".join(f"{state} | {moves[state]} | {' '.join(BY_ITSELF[state])}" for state in STATES)
