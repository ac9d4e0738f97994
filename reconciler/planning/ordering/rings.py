"""Actions that wait for each other in a ring: nothing orders them, so the plan says which they are."""

from __future__ import annotations

from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence


def cut_open(depends: dict[str, tuple[str, ...]]) -> tuple[TopologicalSorter[str], list[tuple[str, ...]]]:
    """Return what depends on what, ready to be walked, and the rings: in each every id waits for the one before it.

    In `depends` each ring is cut open in one place.
    """
    rings: list[tuple[str, ...]] = []
    while True:
        sorter = TopologicalSorter(depends)
        try:
            sorter.prepare()
        except CycleError as error:
            before, name, *_ = ring = tuple(error.args[1])
            rings.append(ring)
            depends[name] = tuple(each for each in depends[name] if each != before)
        else:
            return sorter, rings


def told(ring: Sequence[str]) -> Finding:
    """Return a ring as an error of the plan."""
    return Finding(
        None,
        None,
        f"these wait for each other, so none can come first: {' → '.join(ring)}",
        "Apply them in two steps: take one of them out of the files for now.",
    )
