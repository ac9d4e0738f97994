"""Recovery from the bucket: of new topics, and of a lost cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, ReconcilerError, UserError
from reconciler.planning.actions import ControlAction, Create
from reconciler.providers.brokers.offsets import read_bounds
from reconciler.providers.protocol import CompletedAction, Outcome
from reconciler.providers.redpanda.mounts import ID_PREFIX
from reconciler.resources.topic import Topic
from reconciler.runtime.dataclass import dataclass
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient
    from reconciler.providers.redpanda.client import AdminClient

_RECOVERY: Final = "remote.recovery"
_INACTIVE, _FAILED = "inactive", "failed"
_POLL_S: Final = 0.5
_UNSEEN_S: Final = 5.0
"""Time after which a recovery that no broker has shown as active counts as done."""


def find_recovered(actions: Iterable[ControlAction]) -> dict[str, Topic]:
    """Return topics to recover, by action id."""
    return {
        action.id: action.after
        for action in actions
        if isinstance(action, Create)
        and isinstance(action.after, Topic)
        and action.after.spec.configs.get(_RECOVERY) == "true"
    }


def check_recovered(
    client: KafkaClient, topics: Mapping[str, Topic], outcomes: Iterable[Outcome], warn: Callable[[str], None]
) -> Iterator[Outcome]:
    """Yield the outcomes of a batch; warn about topics that came back empty or with other partitions."""
    for outcome in outcomes:
        if isinstance(outcome, CompletedAction) and outcome.id in topics and outcome.physical_name is not None:
            name = outcome.physical_name
            try:
                message = _explain_difference(client, name, topics[outcome.id].spec.partitions)
            except ReconcilerError as error:
                message = f"what came back of topic {name} is unknown: {error.message}"
            if message is not None:
                warn(message)
        yield outcome


def _explain_difference(client: KafkaClient, name: str, declared: int | None) -> str | None:
    seen = client.read_topic(name)
    count = 0 if seen is None else len(seen.replicas)
    bounds = read_bounds(client, [(name, number) for number in range(count)])
    if not any(bound.end for bound in bounds.values()):
        return f"topic {name} was created empty: object storage has no topic of this name, or no records of it"
    if count != declared:
        return f"topic {name} came back with {pluralize(count, 'partition')}: declare as many, not {declared}"
    return None


@dataclass(frozen=True, slots=True)
class ClusterRecovery:
    """The recovery of a whole cluster by Redpanda itself (redpanda.md, 15)."""

    admin: AdminClient

    def is_active(self) -> bool:
        """Return whether a recovery is in progress."""
        return self.admin.read_recovery()[0] not in {_INACTIVE, _FAILED}

    def has_failed(self) -> bool:
        """Return whether the last recovery failed; it may have left topics."""
        return self.admin.read_recovery()[0] == _FAILED

    def start(self, cluster_id: str | None) -> None:
        """Start the recovery, by default of the bucket's last cluster. Returns before its end."""
        self.admin.start_recovery(None if cluster_id is None else cluster_id.removeprefix(ID_PREFIX))

    def follow(self, tell: Callable[[str], None], wait: Callable[[float], bool]) -> None:
        """Report each stage until the recovery has ended. `wait` pauses, and returns whether to stop.

        Raises:
            UserError: The recovery failed.
            IncompleteError: A stop was requested; the recovery continues.
        """
        began, last = time.monotonic(), ""
        while True:
            stage, error = self.admin.read_recovery()
            if error or stage == _FAILED:
                where = f" after {last}" if last else ""
                message = (
                    f"cluster {self.admin.name}: its recovery failed{where}: {error or 'Redpanda gives no reason'}"
                )
                raise UserError(message, hint="See the log of the brokers, then run the same command again.")
            if stage == _INACTIVE and (last or time.monotonic() - began > _UNSEEN_S):
                return
            if stage not in {_INACTIVE, last}:
                last = stage
                tell(f"recovery of cluster {self.admin.name}: {stage.replace('_', ' ')}")
            if wait(_POLL_S):
                message = f"stopped: the recovery of cluster {self.admin.name} continues"
                raise IncompleteError(message, hint="Run the same command again: it follows the recovery.")
