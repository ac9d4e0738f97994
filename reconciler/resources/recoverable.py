"""What lies in object storage and a topic could be made from, so that a plan can say what that would bring."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from reconciler.errors import UserError
from reconciler.resources.address import Address


@dataclass(frozen=True, slots=True)
class Recoverable:
    """A topic as object storage has it. Sizes are of what would be copied."""

    location: str
    """`<topic>/<cluster uuid>/<initial revision>`, its namespace included."""
    full_name: str
    """What it was called last."""
    partitions: int
    replication_factor: int = 1
    configs: Mapping[str, str] = field(default_factory=dict)
    """All that were set for it: by itself, its namespaces or its cluster."""
    bytes: int = 0
    records: int = 0
    ends: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    """By partition: the first offset that is there, and the next to be uploaded. Absent: nothing was uploaded."""
    ages: tuple[tuple[int, int], ...] = ()
    """(newest timestamp in ms, bytes) of its segments, or of runs of them."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Of `configs`, those that it said itself."""
    initial: Mapping[str, str] = field(default_factory=dict)
    """Of `configs`, or hidden by them, what the defaults of its cluster gave it when it was made."""


Recoveries: TypeAlias = Mapping[Address, Recoverable | UserError]
"""By the address of the topic that is to be made: what is there, or why that cannot be."""
