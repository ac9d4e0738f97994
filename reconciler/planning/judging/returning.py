"""A plan that goes back to a state: what to know of it beside its actions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.actions import Create
from reconciler.planning.finding import Finding
from reconciler.planning.judging.guards import DATA_BEARING
from reconciler.resources.address import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.review import Review


def warnings_of_return(review: Review) -> Iterator[Finding]:
    """Yield what a plan back to a state cannot do; nothing for a plan that leads to the files."""
    back_to = review.situation.given.back_to
    if back_to is None:
        return
    empty = [action.address for action in review.actions if isinstance(action, Create) and _held_records(action)]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        yield Finding(
            None,
            None,
            f"{empty[0]}{more} had records in state #{back_to}, and is made anew and empty",
            "Where its log is still in object storage, declare it with recoverFrom or a Mounting in place of this.",
        )


def _held_records(action: Create) -> bool:
    return kind_of(action.address) in DATA_BEARING and not action.parameters
