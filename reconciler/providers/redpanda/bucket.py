"""Recovery from the bucket of a cluster: of topics at their creation (redpanda.md, 15)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from reconciler.errors import ReconcilerError
from reconciler.planning.actions import ControlAction, Create
from reconciler.providers.brokers.offsets import read_bounds
from reconciler.providers.protocol import CompletedAction, Outcome
from reconciler.resources.topic import Topic
from reconciler.runtime.text import pluralize

if TYPE_CHECKING:
    from reconciler.providers.brokers.client import KafkaClient

_RECOVERY: Final = "remote.recovery"


def find_recovered(actions: Iterable[ControlAction]) -> dict[str, Topic]:
    """Return the topics that are created from object storage, by action id."""
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
