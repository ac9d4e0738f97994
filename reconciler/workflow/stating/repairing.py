"""`state repair`: look at what is left, show what would mend it, ask, and write it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.state.remains import look_at
from reconciler.state.repair import Choice, Repair, judge, mend
from reconciler.workflow.beginning.opening import open_state
from reconciler.workflow.running.emergencies import require_confirmation

if TYPE_CHECKING:
    from collections.abc import Callable

    from reconciler.workflow.beginning.invocation import Invocation, Select

_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class Repaired:
    """What was mended (`None`: there was nothing to mend), and where the lockfile that was there is kept."""

    repair: Repair | None
    kept: str | None = None


def state_repair(
    invocation: Invocation, select: Select, choice: Choice, *, confirm: Callable[[Repair], bool]
) -> Repaired:
    """Make the lockfile anew from what is beside it; `confirm` is asked with what would be done.

    Raises:
        UserError: The state is somebody else's, of a newer version, or a person has to decide; or not confirmed.
        LeaseError: Somebody is applying.
    """
    site = open_state(invocation, select)
    with ThreadPoolExecutor(max_workers=_AT_ONCE, thread_name_prefix="look") as threads:
        remains = look_at(site.state, threads.map)
    repair = judge(site.state, remains, site.owner, choice, lineage=invocation.new_id())
    if repair is None:
        return Repaired(None)
    require_confirmation(confirm(repair))
    return Repaired(repair, mend(site.state, repair))
