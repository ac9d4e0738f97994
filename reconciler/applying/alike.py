"""Failures that are alike, told once: the same error, but for the name of what it happened to."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reconciler.providers.base import Failed
    from reconciler.state.entries import ActionSkipped

_FEW = 3


@dataclass(frozen=True, slots=True)
class Alike:
    """Actions that failed for one reason. Where they are several, `…` in `error` and `hint` stands for their names."""

    error: str
    hint: str
    ids: tuple[str, ...]


def alike(failed: Iterable[Failed]) -> tuple[Alike, ...]:
    """Return failures grouped by their reason: the most frequent first, else in the order in which they happened."""
    groups: dict[tuple[str, str], list[Failed]] = {}
    for each in failed:
        key = (nameless(each.error.message, each.id), nameless(each.error.hint, each.id))
        groups.setdefault(key, []).append(each)
    told = (
        Alike(*(key if len(group) > 1 else (group[0].error.message, group[0].error.hint)), _ids(group))
        for key, group in groups.items()
    )
    return tuple(sorted(told, key=lambda group: -len(group.ids)))


def by_cause(skipped: Iterable[ActionSkipped]) -> dict[str, tuple[str, ...]]:
    """Return what was skipped by the failed action it leans on: what cost most first."""
    causes: dict[str, list[str]] = {}
    for each in skipped:
        causes.setdefault(each.because, []).append(each.id)
    return {cause: tuple(ids) for cause, ids in sorted(causes.items(), key=lambda item: -len(item[1]))}


def nameless(text: str, action: str) -> str:
    """Leave out of a message what it happened to: the action's id, its address, or its name."""
    address = action.partition(":")[2]
    for name in (action, address, address.rpartition("/")[2]):
        if name and name in text:
            text = re.sub(rf"(?<![\w.:/-]){re.escape(name)}(?![\w/-]|[.:]\w)", "…", text)
    return text


def first_few(ids: Sequence[str]) -> str:
    """Return names for one line, however many there are: the first three, and how many more."""
    named = ", ".join(ids[:_FEW])
    return named if len(ids) <= _FEW else f"{named} and {len(ids) - _FEW:,} more"


def _ids(group: Sequence[Failed]) -> tuple[str, ...]:
    return tuple(each.id for each in group)
