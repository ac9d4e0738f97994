"""What a check of a whole plan looks at: its situation, actions and measures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reconciler.planning.actions import Action
    from reconciler.planning.plan import Override
    from reconciler.planning.situation import Situation
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired
    from reconciler.resources.measures import Measure


@dataclass(frozen=True, slots=True)
class Review:
    """A plan before its findings: the situation it was made in, its actions, and what they were judged by."""

    situation: Situation
    desired: Desired
    """The files as they are, also what is no resource of a cluster: policies."""
    actions: Sequence[Action]
    overrides: Sequence[Override]
    measure: Callable[..., Measure | None]
    """Returns what was measured of a topic; `is_wish`: no risk rests on it."""
    below: Callable[[Address], Iterable[Address]]
    """Returns the topics in a namespace or on a cluster; of anything else none."""
