"""Mirrors that a batch pauses, resumes or fails over: one cluster does that alone, whatever its source is up to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.mirroring import ask_mirror, mirror_named
from reconciler.embedded.threads import all_side_by_side
from reconciler.errors import LeaseError, ReconcilerError
from reconciler.lifecycles.mirror import MIRROR
from reconciler.planning.actions import Transition
from reconciler.providers.base import Done, Failed
from reconciler.resources.address import full_name_of
from reconciler.resources.mirrorstates import FAILOVER, Asked, is_done

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reconciler.embedded.catalog.tables import Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome


def ask_once(draft: Draft, full_name: str, verb: str, now_ms: int) -> str:
    """Ask a verb of a mirror, or find that it was; return which topic it is.

    Raises:
        UserError: It is no mirror, or the verb is not legal in its state: it says what is.
    """
    topic, mirror = mirror_named(draft, full_name)
    if not is_done(mirror, verb):
        ask_mirror(draft, full_name, verb, Asked(now_ms))
    return topic.id


def failed_over(
    cluster: EmbeddedCluster,
    actions: Sequence[ControlAction],
    outcomes: Sequence[Outcome],
    may_go_on: Callable[[], None],
) -> list[Outcome]:
    """Let producers write to what a batch failed over, and hold its groups to its end, side by side.

    It is done where that is: one that was not has failed, and may be repeated.

    Raises:
        LeaseError: By `may_go_on`; the next producer takes over what was left, and so does whoever asks again.
    """
    names = {action.id: full_name_of(action.address) for action in actions if _is_failover(action)}
    mine = [outcome.id for outcome in outcomes if outcome.id in names and isinstance(outcome, Done)]
    if not mine:
        return list(outcomes)
    linking, errors = replace(cluster.linking, may_go_on=may_go_on), dict[str, ReconcilerError]()

    def open_heads(name: str) -> None:
        try:
            linking.open_heads(names[name])
        except LeaseError:
            raise
        except ReconcilerError as error:
            errors[name] = error

    all_side_by_side(open_heads, mine, name="failover")
    return [Failed(each.id, errors[each.id]) if each.id in errors else each for each in outcomes]


def _is_failover(action: ControlAction) -> bool:
    return isinstance(action, Transition) and (action.machine, action.verb) == (MIRROR.name, FAILOVER)
