"""What `topic alter` changed, as text: a value that is inherited says from where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.cli.render.values import field_name, value_text

if TYPE_CHECKING:
    from reconciler.planning.actions import Change, Value
    from reconciler.workflow.altering import Altered


def altered_text(altered: Altered) -> list[Line]:
    """Return a line for each config: what acted before, and what acts now."""
    return [line(Span("~ ", Tone.CHANGE), altered.address, "  ", _change(altered, each)) for each in altered.changes]


def _change(altered: Altered, change: Change) -> str:
    before, after = (_acting(altered, change.path, value) for value in (change.before, change.after))
    return f"{field_name(change.path)} {before} → {after}"


def _acting(altered: Altered, path: str, own: Value) -> str:
    inherited = altered.inherited.get(field_name(path))
    if own is not None or inherited is None:
        return value_text(path, own)
    return f"{value_text(path, inherited.value)} ({inherited.origin})"
