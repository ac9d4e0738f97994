"""A finding: an error or warning about files or a plan."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from reconciler.resources.address import Address

Mark: TypeAlias = tuple[Address, tuple[str | int, ...]]
"""A field of a declared resource: its address, and the way to the field as people write it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """An error no `--allow` lifts, or a warning; `source` is where it was declared."""

    address: Address | None
    source: str | None
    message: str
    hint: str
    marks: tuple[Mark, ...] = ()
    """The fields it is about, until somebody who has the files says where they are written."""
    is_of_approval: bool = False
    """Whether it says who has to approve the plan: a comment shows that at its head."""
    excluded_by: str | None = None
    """What `--exclude` leaves it out by, where that is not its address; empty: nothing does."""
    is_of_drift: bool = False
    """Whether it warns of an out-of-band change that no apply sets back: `drift` shows it, too."""
