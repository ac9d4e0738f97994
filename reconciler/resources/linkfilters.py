"""The filters of a link as its destination keeps them: what is enabled needs some, what is disabled has none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import UserError
from reconciler.resources.linksyncs import NameFilter

if TYPE_CHECKING:
    from reconciler.resources.linkentries import Json, LinkEntry

AUTO_CREATE: Final = "autoCreate"
OFFSETS: Final = "consumerOffsetSync"


def filters_of(link: LinkEntry, task: str) -> tuple[NameFilter, ...]:
    """Return the filters of one thing a link does (`autoCreate`); none where it does not do it."""
    declared = link.declared.get(task) or {}
    if not declared.get("enabled", False):
        return ()
    return tuple(NameFilter.model_validate(each) for each in declared.get("filters", ()))


def with_filters(name: str, declared: Json) -> Json:
    """Return what is asked of a link, without the filters of what it does not do (F-C-023).

    Raises:
        UserError: It is to make mirrors or bring offsets, and nothing says which.
    """
    kept = dict(declared)
    for task in (AUTO_CREATE, OFFSETS):
        asked = kept.get(task)
        if asked is None:
            continue
        if not asked.get("enabled", False):
            kept[task] = {key: [] if key == "filters" else value for key, value in asked.items()}
        elif not asked.get("filters"):
            message = f"link {name}: {task} is enabled and has no filters"
            raise UserError(message, hint='To take everything, write `filters: [{name: "*"}]`.')
    return kept
