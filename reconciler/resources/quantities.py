"""Durations and sizes as people write them, and the integers (ms, bytes) they mean.

`7d`, `36h`, `1500ms`, `infinite`; `10GiB`, `500MB`, `unlimited`. Plain numbers are ms and bytes, as in Kafka;
`infinite`, `unlimited` and `-1` are the same. What is printed reads back as the same number.
"""

from __future__ import annotations

import re
from typing import Final

UNLIMITED: Final = -1

_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_BYTES: Final = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "PB": 10**15,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
    "PiB": 2**50,
}
# Weeks are read but not written: 30d is clearer than 4w 2d, and 28d than 4w.
_SHOWN_MS: Final = tuple((unit, _MS[unit]) for unit in ("d", "h", "m", "s", "ms"))
_SHOWN_BYTES: Final = tuple(
    (unit, _BYTES[unit]) for unit in ("PiB", "TiB", "GiB", "MiB", "KiB", "PB", "TB", "GB", "MB", "KB")
)
_QUANTITY: Final = re.compile(r"([0-9]{1,40})(?:\.([0-9]{1,40}))?\s*([A-Za-z]+)")
_INTEGER: Final = re.compile(r"-?[0-9]{1,40}")


def parse_duration(value: object) -> int:
    """Return milliseconds. Raises ValueError with the accepted forms."""
    return _parse(value, _MS, "a duration such as 7d, 36h, 90s, 1500ms or infinite")


def parse_size(value: object) -> int:
    """Return bytes. Raises ValueError with the accepted forms."""
    return _parse(value, _BYTES, "a size such as 10GiB, 500MB, 1024 or unlimited")


def format_duration(ms: int) -> str:
    """Return the shortest exact form: 604800000 → `7d`."""
    return "infinite" if ms == UNLIMITED else _format(ms, _SHOWN_MS)


def format_size(count: int) -> str:
    """Return the shortest exact form, in powers of two where it can be: 10737418240 → `10GiB`, 500000000 → `500MB`."""
    return "unlimited" if count == UNLIMITED else _format(count, _SHOWN_BYTES)


def _parse(value: object, units: dict[str, int], wanted: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = value.strip()
        if text.lower() in {"infinite", "unlimited"}:
            return UNLIMITED
        if _INTEGER.fullmatch(text):
            return int(text)
        quantity = _QUANTITY.fullmatch(text)
        if quantity and (unit := _unit(quantity[3], units)):
            # Integer arithmetic throughout: 0.1d must be exact, and floats are not.
            whole, part = quantity[1], quantity[2] or ""
            scaled = int(whole + part) * units[unit]
            divisor = int("1" + "0" * len(part))
            if scaled % divisor == 0:
                return scaled // divisor
    message = f"not {wanted}"
    raise ValueError(message)


def _unit(text: str, units: dict[str, int]) -> str | None:
    if text in units:
        return text
    folded = [unit for unit in units if unit.lower() == text.lower()]
    return folded[0] if folded else None


def _format(value: int, units: tuple[tuple[str, int], ...]) -> str:
    for unit, size in units:
        if value and value % size == 0:
            return f"{value // size}{unit}"
    return str(value)
