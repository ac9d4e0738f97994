"""What is said of the files or of a plan. Apart from the plan: `validate` needs nothing else of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reconciler.resources.address import Address


@dataclass(frozen=True, slots=True)
class Finding:
    """An error no `--allow` lifts, or a warning; `source` is where it was declared."""

    address: Address | None
    source: str | None
    message: str
    hint: str
