"""Orders: what a command wants and the files do not say.

The plan of an order is made over what is recorded and observed. It holds the actions of the order, what these need, and
nothing else, so it needs no files. Each order stands alone: one that is refused stops no other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from reconciler.resources.address import Address


@dataclass(frozen=True, slots=True)
class ForgetOrder:
    """Stop owning what a pattern names; with `is_recursive` also what is in those namespaces and on those clusters."""

    pattern: str
    is_recursive: bool = False


@dataclass(frozen=True, slots=True)
class ReaddressOrder:
    """Record `before` as `after` from now on, a namespace with all that is in it."""

    before: Address
    after: Address


Order: TypeAlias = ForgetOrder | ReaddressOrder
