"""Planning itself: does the time for one topic stay the same however many there are?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from measuring import Row, Scale, in_turns, printed_seconds

SIZES = (1_000, 10_000, 100_000)
WHY = "The objects of more topics no longer fit into the processor's caches."


def rows(scale: Scale, scratch: Path) -> Iterator[Row]:
    del scratch
    sizes = SIZES[:2] if scale.quick else SIZES
    subjects = {str(size): lambda size=size: printed_seconds("probes/plan.py", str(size)) / size for size in sizes}
    each = in_turns(subjects, scale.of(3, 1))
    smallest = each[str(sizes[0])]
    for size in sizes[1:]:
        ours = each[str(size)]
        what = f"planning, time per topic at {size:,} topics"
        against = f"the same at {sizes[0]:,}"
        yield Row(what, against, _micros(ours), _micros(smallest), ours / smallest, 1.2, why=WHY)


def _micros(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} µs"
