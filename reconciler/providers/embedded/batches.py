"""A batch carried out: one commit, then what takes longer than a commit is driven to its end."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from reconciler.lifecycles.mounting import MOUNT, UNMOUNT
from reconciler.noting import ms_since, note, now
from reconciler.planning.actions import Transition
from reconciler.providers.base import Failed
from reconciler.providers.embedded.client import Batch
from reconciler.providers.embedded.mirrors import failed_over
from reconciler.providers.embedded.recovering import asked_in, ended
from reconciler.providers.embedded.switching import switched_off
from reconciler.resources.address import full_name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.planning.actions import ControlAction
    from reconciler.providers.base import Outcome
    from reconciler.providers.embedded.mounting.attaching import Attaching
    from reconciler.resources.recoverable import Recoveries

_LOGGER: Final = logging.getLogger("reconciler.providers")
_ATTACHES: Final = frozenset({MOUNT.name, UNMOUNT.name})


def carried_out(
    name: str,
    cluster: EmbeddedCluster,
    actions: Sequence[ControlAction],
    recoveries: Recoveries,
    may_go_on: Callable[[], None],
) -> Iterator[Outcome]:
    """Do a batch on the cluster called `name` and yield one outcome each; `recoveries` is what its new topics may take.

    Raises:
        LeaseError: By `may_go_on`; what was begun is finished by whoever comes next.
    """
    attaching = _attaching(cluster, actions)
    batch = Batch(actions, cluster, recoveries, attaching)
    began = now()
    cluster.catalog.commit(batch.decide, may_go_on=may_go_on)
    failed = sum(isinstance(outcome, Failed) for outcome in batch.outcomes)
    note(_LOGGER, "batch", cluster=name, actions=len(actions), failed=failed, ms=ms_since(began))
    recovered = {f"create:{address}": full_name_of(address) for address in asked_in(actions)}
    opened = failed_over(cluster, actions, batch.outcomes, may_go_on)
    outcomes = ended(cluster, switched_off(cluster, actions, opened, may_go_on), recovered, may_go_on)
    yield from outcomes if attaching is None else attaching.ended(outcomes, may_go_on)


def _attaching(cluster: EmbeddedCluster, actions: Sequence[ControlAction]) -> Attaching | None:
    if not any(isinstance(action, Transition) and action.machine in _ATTACHES for action in actions):
        return None
    from reconciler.providers.embedded.mounting.attaching import Attaching, attachments_in  # noqa: PLC0415 - only who mounts pays

    return Attaching.of(cluster, attachments_in(actions))
