"""What manifests say about each other, as far as it can be judged without asking a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.manifests.findings import Findings, Place
    from reconciler.resources.address import Address
    from reconciler.resources.inventory import Desired


def check_references(desired: Desired, places: Mapping[Address, tuple[Place, ...]], findings: Findings) -> None:
    """Complain about what names something that is not declared."""
