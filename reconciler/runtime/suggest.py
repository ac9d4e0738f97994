"""What was probably meant by a word that is not known: "Did you mean …?"."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

LIKENESS: Final = 0.6
"""How much of two words is the same where one is suggested for the other; 1 is all of it."""


def nearest(word: str, known: Iterable[str], *, most: int = 1, likeness: float = LIKENESS) -> list[str]:
    """Return the known words that look like `word`, the most alike first."""
    from difflib import get_close_matches  # noqa: PLC0415 - needed only once something is wrong

    return get_close_matches(word, list(known), n=most, cutoff=likeness)


def nearest_spelling(word: str, known: Iterable[str]) -> list[str]:
    """Return the known word that looks like `word`; one that differs in case, `-` and `_` only comes before others."""
    words = sorted(known)
    folded = _folded(word)
    same = next((each for each in words if _folded(each) == folded), None)
    return nearest(word, words) if same is None else [same]


def did_you_mean(near: Sequence[str], *, otherwise: str = "", then: str = "") -> str:
    """Return the question whether one of `near` was meant, or `otherwise` where there is none; `then` follows both."""
    asked = f"Did you mean {' or '.join(near)}?" if near else otherwise
    return f"{asked} {then}" if asked and then else asked or then


def _folded(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()
