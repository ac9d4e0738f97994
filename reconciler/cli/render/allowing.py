"""Many blocks lifted at once: what a person can paste, and no wider than the names that are blocked have in common."""

from __future__ import annotations

from itertools import groupby
from os.path import commonprefix
from typing import Final

_FEW: Final = 5
"""So many of a kind are allowed one by one: an address says what it lifts, a pattern may lift more tomorrow."""


def at_once(names: list[str]) -> list[str]:
    """Return what allows all of `VERB:ADDR` names; more than a few of a verb, a kind and a cluster as one pattern."""
    found: list[str] = []
    for _, same in groupby(sorted(names, key=_kind), key=_kind):
        alike = list(same)
        found += alike if len(alike) <= _FEW else [_pattern(alike)]
    return found if len(found) < len(names) else names


def _kind(name: str) -> str:
    """Return verb, kind and cluster: `delete:topic/west/`."""
    return name[: name.rfind("/") + 1]


def _pattern(names: list[str]) -> str:
    """Return what names begin with alike, up to the end of a tier of their namespaces."""
    shared = commonprefix(names)  # noqa: RUF071 - characters are meant: half a tier is cut off below
    return shared[: max(shared.rfind(":"), shared.rfind("/")) + 1] + "*"
