"""Failures as they happen: the first few of a kind are told at once, the others are counted at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from reconciler.applying.alike import nameless
from reconciler.cli.render.events_text import failed_line
from reconciler.cli.render.lines import Span, Tone, line

if TYPE_CHECKING:
    from reconciler.applying.events import ActionFailed
    from reconciler.cli.render.lines import Line

FEW: Final = 5
"""So many failures of a kind are told one by one."""


class Failures:
    """What was told of one run's failures."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._seen: Counter[str] = Counter()

    def lines(self, event: ActionFailed) -> list[Line]:
        """Return what to say of one more failure; nothing where enough of its kind were told."""
        kind = nameless(event.error, event.id)
        self._seen[kind] += 1
        if self._seen[kind] < FEW:
            return [failed_line(event)]
        if self._seen[kind] == FEW:
            return [failed_line(event), line(Span("  more like it are counted at the end", Tone.QUIET))]
        return []
