"""Tiering that a batch switches off: driven to its end before the batch is over (KIP-950)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from reconciler.embedded.catalog.tiering import disabling
from reconciler.errors import LeaseError, ReconcilerError
from reconciler.planning.actions import Create, Delete, Transition, Update
from reconciler.providers.base import Done, Failed
from reconciler.resources.address import full_name_of
from reconciler.resources.tierrules import SWITCHES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome

_CONFIGS: Final = "configs."


def switched_off(
    cluster: EmbeddedCluster,
    actions: Sequence[ControlAction],
    outcomes: Sequence[Outcome],
    may_go_on: Callable[[], None],
) -> list[Outcome]:
    """Finish what the actions of a batch left DISABLING; one whose topics are not done has failed, and may be repeated.

    Raises:
        LeaseError: By `may_go_on`; what is left is finished by whoever comes next.
    """
    if not _concerned(actions, disabling(cluster.catalog.known())):
        return list(outcomes)
    try:
        cluster.finish_disablings(may_go_on=may_go_on)
    except LeaseError:
        raise
    except ReconcilerError as error:
        failed = _concerned(actions, disabling(cluster.catalog.read()))
        return [
            Failed(outcome.id, error) if isinstance(outcome, Done) and outcome.id in failed else outcome
            for outcome in outcomes
        ]
    return list(outcomes)


def _concerned(actions: Sequence[ControlAction], topics: Iterable[str]) -> frozenset[str]:
    """Return the ids of the actions that may have switched those topics off: theirs, or of namespaces above them."""
    above = {prefix for name in topics for prefix in _and_above(name)}
    return frozenset(action.id for action in actions if _may_switch(action) and full_name_of(action.address) in above)


def _may_switch(action: ControlAction) -> bool:
    """Tell whether an action may have moved the switches of a topic: its own, its tiers', or by moving it."""
    match action:
        case Transition():
            return True
        case Update():
            return any(change.path.removeprefix(_CONFIGS) in SWITCHES for change in action.changes)
        case Create() | Delete():
            return False
        case _:
            assert_never(action)


def _and_above(full_name: str) -> list[str]:
    tiers = full_name.split(":")
    return [":".join(tiers[:length]) for length in range(1, len(tiers) + 1)]
