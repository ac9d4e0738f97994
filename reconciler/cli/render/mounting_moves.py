"""Mounts and unmounts in words: what one would do, and what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.cli.render.amounts import about, bytes_text, counted, rough_count
from reconciler.cli.render.lines import Line, Span, Tone, line
from reconciler.lifecycles.mounting import BY_JOBS, UNMOUNT
from reconciler.planning.actions import Reason, Transition
from reconciler.resources.mounting import Mounting

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reconciler.planning.actions import Action
    from reconciler.planning.estimates import Estimate

_NAMED = 3


def mount_headline(action: Transition, mounting: Mounting) -> str:
    """Return what is mounted from where, or what is unmounted, and where it will lie."""
    if _is_unmount(action):
        to = action.estimate.location
        return f"unmount {mounting.topic_name}{f' to {to}' if to else ''}"
    alias = f" as {mounting.spec.as_}" if mounting.spec.as_ else ""
    return f"mount {_place(action, mounting)}{alias}"


def mount_notes(action: Transition) -> Iterator[str]:
    """Yield what a mount or unmount moves: it copies nothing; it flushes, and closes the topic for a while.

    Jobs copy and compare all of it, and shut producers out before the last of it.
    """
    found, is_copied = action.estimate, action.parameters.get("by") == BY_JOBS
    if not _is_unmount(action):
        if found.partitions:
            yield f"{_size(found)} come back, {'copied and compared' if is_copied else '0 bytes copied'}"
        return
    if is_copied:
        yield "archived, compared, then deleted" if is_unmeasured(action) else f"{bytes_text(found.bytes)} to archive"
    elif not is_unmeasured(action):
        yield f"{bytes_text(found.uploads)} to flush"
        yield f"{about(found.no_writes_seconds)} without writes"
    yield _readers(found)


def is_unmeasured(action: Transition) -> bool:
    """Tell whether nobody knows what a topic holds."""
    return Reason.UNMEASURED in action.reasons


def _readers(estimate: Estimate) -> str:
    """Return who is reading a topic; a few by name."""
    groups = estimate.groups
    if groups is None:
        return "who is reading it cannot be told"
    if not groups:
        return "no group is reading it"
    names = ", ".join(groups[:_NAMED]) + (" …" if len(groups) > _NAMED else "")
    return f"{counted(len(groups), 'group')} {'is' if len(groups) == 1 else 'are'} reading it ({names})"


def mounted_lines(done: Iterable[Action], most: int) -> Iterator[Line]:
    """Yield where each topic lies that was unmounted, and what each that was mounted is called: `most` of them."""
    moved = [action for action in done if isinstance(action, Transition) and isinstance(action.after, Mounting)]
    for action in moved[:most]:
        yield line(Span("✓ ", Tone.ADD), f"{action.address}: {_outcome(action)}")
    if len(moved) > most:
        yield line(Span(f"  and {len(moved) - most} more", Tone.QUIET))


def _outcome(action: Transition) -> str:
    mounting = action.after
    if not isinstance(mounting, Mounting):
        return action.to_state
    if _is_unmount(action):
        return f"detached at {_place(action, mounting)}"
    return f"mounted from {_place(action, mounting)} as {mounting.topic_name}"


def _place(action: Transition, mounting: Mounting) -> str:
    """Return the location where it is known, else what the files call it."""
    return (
        action.estimate.location or mounting.spec.source or str(action.parameters.get("source") or mounting.full_name)
    )


def _size(found: Estimate) -> str:
    records = f"{rough_count(found.records)} record{'' if found.records == 1 else 's'}"
    return f"{counted(found.partitions, 'partition')}, {records}, {bytes_text(found.bytes)}"


def _is_unmount(action: Transition) -> bool:
    return action.machine == UNMOUNT.name
