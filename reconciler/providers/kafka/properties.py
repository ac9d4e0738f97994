"""The cluster as a resource: its id, and the properties that hold for all brokers and were set while they ran."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError, ReconcilerError
from reconciler.planning.fields import PROPERTIES
from reconciler.providers.base import Done, Failed
from reconciler.providers.changes import check_unmoved
from reconciler.resources.inventory import Observed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.planning.actions import Update
    from reconciler.providers.base import Outcome
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.look import Look
    from reconciler.providers.kafka.metadata import ConfigSeen
    from reconciler.resources.cluster import Cluster

_DYNAMIC_DEFAULT: Final = 3
"""Source of a property that holds for all brokers and was set while they ran."""


def observed_cluster(look: Look, declared: Cluster) -> Observed:
    """Return a cluster as its brokers have it; hidden where it declares what whoever acts may not see."""
    cluster_id, hidden, properties = look.cluster.id, None, {}
    if isinstance(look.configs, NotAuthorizedError):
        hidden = look.configs if declared.spec.properties else None  # Else nobody asks for them.
    else:
        properties = _properties_in(look.configs[1])
    spec = declared.spec.model_copy(update={"cluster_id": cluster_id, "properties": properties})
    return Observed(declared.model_copy(update={"spec": spec}), cluster_id, hidden=hidden)


def properties_of(client: KafkaClient) -> dict[str, str]:
    """Return what holds for all brokers and was set while they ran."""
    return _properties_in(client.broker_configs())


def _properties_in(configs: Mapping[str, ConfigSeen]) -> dict[str, str]:
    return {
        key: each.value
        for key, each in sorted(configs.items())
        if each.source == _DYNAMIC_DEFAULT and each.value is not None
    }


def change_cluster(client: KafkaClient, action: Update, may_go_on: Callable[[], None]) -> Outcome:
    """Set and reset the properties an action changes, in one request."""
    from reconciler.providers.kafka.changing.writing import configure_brokers  # noqa: PLC0415 - plans need none of it

    try:
        changes = [change for change in action.changes if change.path.startswith(PROPERTIES)]
        check_unmoved(
            action.address, changes, {PROPERTIES + key: value for key, value in properties_of(client).items()}
        )
        wanted = {
            change.path.removeprefix(PROPERTIES): None if change.after is None else str(change.after)
            for change in changes
        }
        if wanted:
            may_go_on()
            configure_brokers(client, wanted)
    except ReconcilerError as error:
        return Failed(action.id, error)
    return Done(action.id, client.cluster().id)
