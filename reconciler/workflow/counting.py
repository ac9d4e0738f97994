"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, one: str, many: str) -> str:
    """Return a number with the word that goes with it."""
    return f"{number} {one if number == 1 else many}"
