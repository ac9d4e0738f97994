"""The nearest known word, for "did you mean"."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that was probably meant."""
    import difflib  # noqa: PLC0415 - needed only once something is wrong

    words = sorted(known)
    folded = {_fold(each): each for each in reversed(words)}
    if _fold(word) in folded:
        return folded[_fold(word)]
    close = difflib.get_close_matches(word, words, n=1, cutoff=0.6)
    return close[0] if close else None


def did_you_mean(word: str, known: Iterable[str], *, otherwise: str) -> str:
    """Return the hint that names the nearest known word, or `otherwise`."""
    found = nearest(word, known)
    return f"Did you mean {found}?" if found else otherwise


def one_of(words: Iterable[str]) -> str:
    """Return a list of words for a hint, cut where it gets long."""
    known = sorted(words)
    shown = ", ".join(known[:_SHOWN])
    return shown + (f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else "") if known else "none"


_SHOWN = 12


def _fold(word: str) -> str:
    return word.replace("_", "").replace("-", "").lower()
