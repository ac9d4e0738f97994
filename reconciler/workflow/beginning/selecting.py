"""SELECT as it was typed → what planning is told."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from reconciler.errors import UsageError
from reconciler.planning.plan import Selection
from reconciler.resources.address import matches

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reconciler.workflow.beginning.invocation import Invocation, Select

_ALLOWANCE: Final = re.compile(r"[a-z-]+:.+", re.DOTALL)
_ON_CLUSTER: Final = ("namespace", "topic", "mounting", "link", "mirror")


def selection(invocation: Invocation, select: Select, folder: Path) -> Selection:
    """Return what of the workspace in `folder` a plan is about.

    Raises:
        UsageError: A label or an allowance is not of its form.
    """
    changed = None
    if select.changed_since is not None:
        changed = tuple(sorted(invocation.changed_files(folder, select.changed_since)))
    return Selection(
        targets=select.targets,
        excludes=select.excludes,
        labels=tuple(pair("-l", text) for text in select.labels),
        changed_files=changed,
        allow=tuple(_allowance(text) for text in select.allow),
    )


def pair(option: str, text: str) -> tuple[str, str]:
    """Split `NAME=VALUE` at the first equals sign."""
    name, sign, value = text.partition("=")
    if not sign or not name:
        raise UsageError(f"{option} {text!r} is not NAME=VALUE", hint=f"Write it as {option} NAME=VALUE.")
    return name, value


def left_out(clusters: Iterable[str], excludes: Iterable[str]) -> frozenset[str]:
    """Return the clusters of which `excludes` leaves nothing to read: `*/east/*` leaves out all of `east`."""
    patterns = tuple(excludes)
    return frozenset(
        cluster
        for cluster in clusters
        # No name holds a NUL: only a pattern that takes every name takes this one.
        if all(any(matches(pattern, f"{kind}/{cluster}/\0") for pattern in patterns) for kind in _ON_CLUSTER)
    )


def _allowance(text: str) -> str:
    if not _ALLOWANCE.fullmatch(text):
        raise UsageError(
            f"--allow {text!r} is not VERB:ADDR",
            hint="Copy it from the plan's last line, for example --allow delete:topic/west/shop:orders.",
        )
    return text
