"""What whoever plans may not see: an error, for it would look missing and be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.planning.finding import Finding
from reconciler.planning.situation import mirror_at
from reconciler.resources.address import rank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.planning.situation import Situation


def check_hidden(situation: Situation) -> Iterator[Finding]:
    """Yield every wanted or recorded address that is there and hidden."""
    hidden = situation.given.hidden
    if not hidden:
        return
    for address in sorted({*situation.wanted, *situation.recorded}, key=rank):
        why = hidden.get(address) or hidden.get(mirror_at(address))
        if why is not None and situation.is_decidable(address):
            wanted = situation.wanted.get(address)
            yield Finding(
                address, wanted.source if wanted else None, f"it is there, but hidden: {why.message}", why.hint
            )
