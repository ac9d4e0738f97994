"""Access rules that a link brings: those it brought are remembered, so that they go when they go at the source. Pure.

A rule that stood there before is not the link's, even where the source has the same: it stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.syncs import RuleFields


def brought(
    there: RuleFields, before: RuleFields, wanted: RuleFields
) -> tuple[Mapping[str, tuple[str, ...] | None], dict[str, tuple[str, ...]]]:
    """Return the changes to the rules that are there, and which rules are the link's then, by path and operation.

    `before` are those it brought the last time.
    """
    changes: dict[str, tuple[str, ...] | None] = {}
    own: dict[str, tuple[str, ...]] = {}
    for path in sorted({*before, *wanted}):
        now, ours, asked = (frozenset(fields.get(path, ())) for fields in (there, before, wanted))
        after = (now - (ours - asked)) | asked
        if after != now:
            changes[path] = tuple(sorted(after)) or None
        kept = (ours & asked & now) | (asked - now)
        if kept:
            own[path] = tuple(sorted(kept))
    return changes, own
