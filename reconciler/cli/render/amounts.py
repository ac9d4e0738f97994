"""Amounts for people: bytes, counts and times, rounded. What must be exact is printed by `values`."""

from __future__ import annotations

from typing import Final

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_KIB: Final = 1024
_ROUND: Final = 100
_MINUTE: Final = 60
_HOUR: Final = 3600
_DAY: Final = 86_400
_MILLION: Final = 1_000_000
_BILLION: Final = 1_000_000_000


def bytes_text(count: int) -> str:
    """Return a size with one decimal where it says something: `41.2 GiB`."""
    amount, unit = float(count), 0
    while round(amount, 1) >= _KIB and unit < len(_SIZES) - 1:
        amount, unit = amount / _KIB, unit + 1
    return f"{_short(amount)} {_SIZES[unit]}"


def count_text(count: int) -> str:
    """Return a count as it is: `1,284`."""
    return f"{count:,}"


def rough_count(count: int) -> str:
    """Return a count for orientation: `4.1 M`."""
    if count >= _BILLION:
        return f"{_short(count / _BILLION)} G"
    return f"{_short(count / _MILLION)} M" if count >= _MILLION else count_text(count)


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count and what is counted: `1 topic`, `2 topics`."""
    return f"{count_text(count)} {noun if count == 1 else plural or noun + 's'}"


def about(seconds: float) -> str:
    """Return a time to come: `about 2 min`."""
    if seconds < _MINUTE:
        return f"about {max(1, round(seconds))} s"
    if seconds < _HOUR:
        return f"about {round(seconds / _MINUTE)} min"
    return f"about {_short(seconds / _HOUR)} h" if seconds < 2 * _DAY else f"about {round(seconds / _DAY)} days"


def took(seconds: float) -> str:
    """Return a time that has passed: `1.1 s`, `12 min 5 s`."""
    if seconds < _MINUTE:
        return f"{_short(seconds)} s"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} min {int(seconds % _MINUTE)} s"
    return f"{int(seconds // _HOUR)} h {int(seconds % _HOUR // _MINUTE)} min"


def _short(amount: float) -> str:
    rounded = round(amount, 1)
    return f"{rounded:.0f}" if rounded >= _ROUND or rounded.is_integer() else f"{rounded:.1f}"
