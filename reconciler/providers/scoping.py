"""What of a cluster is asked for, told by address."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.resources.address import matches

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.providers.base import Scope


def wanted_in(scope: Scope) -> Callable[[str], bool] | None:
    """Return what tells whether an address is in scope; `None`: everything is. A name without `*` is compared."""
    if not scope.patterns:
        return None
    names = frozenset(pattern for pattern in scope.patterns if "*" not in pattern)
    patterns = [pattern for pattern in scope.patterns if "*" in pattern]
    return lambda address: address in names or any(matches(pattern, address) for pattern in patterns)
