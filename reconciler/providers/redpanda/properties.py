"""Cluster properties of Redpanda: read, set by one request, and waited for on every node."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson

from reconciler.errors import ReconcilerError, RetryableError
from reconciler.planning.fields import PROPERTIES
from reconciler.providers.models import check_unchanged
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome
from reconciler.resources.inventory import Observed
from reconciler.runtime.retry import Backoff, Tries

if TYPE_CHECKING:
    from reconciler.planning.actions import Update
    from reconciler.providers.redpanda.client import AdminClient
    from reconciler.resources.cluster import Cluster

_HIDDEN: Final = "[secret]"
"""What the Admin API shows of a secret that is set."""
_POLLS: Final = Backoff(0.1, 1.0, spread=0.2)
_NODES_LIMIT_S: Final = 60.0


def observe_properties(declared: Cluster, cluster_id: str, admin: AdminClient) -> Observed:
    """Return the cluster with its set properties; a masked secret counts as the declared one."""
    properties = {
        name: declared.spec.properties.get(name, value) if value == _HIDDEN else value
        for name, value in _read_set_properties(admin).items()
    }
    spec = declared.spec.model_copy(update={"cluster_id": cluster_id, "properties": properties})
    return Observed(declared.model_copy(update={"spec": spec}), cluster_id)


def change_properties(action: Update, cluster_id: str, admin: AdminClient, may_go_on: Callable[[], None]) -> Outcome:
    """Set and reset properties, all or none, and wait until every node has them."""
    try:
        changes = [change for change in action.changes if change.path.startswith(PROPERTIES)]
        current = {PROPERTIES + name: value for name, value in _read_set_properties(admin).items()}
        shown = [change for change in changes if current.get(change.path) != _HIDDEN]
        check_unchanged(action.address, shown, current)
        schema = admin.read_property_schema()
        wanted = {change.path.removeprefix(PROPERTIES): change.after for change in changes}
        upsert = {name: _to_json(value, schema.get(name, {})) for name, value in wanted.items() if value is not None}
        if wanted:
            may_go_on()
            version = admin.set_properties(upsert, [name for name, value in wanted.items() if value is None])
            _wait_for_nodes(admin, version, may_go_on)
    except ReconcilerError as error:
        return FailedAction(action.id, error)
    return CompletedAction(action.id, cluster_id)


def _read_set_properties(admin: AdminClient) -> dict[str, str]:
    return {
        name: format_property(value)
        for name, value in sorted(admin.read_properties(with_defaults=False).items())
        if value is not None
    }


def format_property(value: object) -> str:
    """Return a property's JSON value as manifests write it."""
    if isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _to_json(value: object, entry: Mapping[str, Any]) -> object:
    """Return a value in the schema's type; others are sent as text, which the cluster rejects."""
    text = str(value)
    if entry.get("type") in {"boolean", "integer", "number", "array"}:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            return text
    return text


def _wait_for_nodes(admin: AdminClient, version: int, may_go_on: Callable[[], None]) -> None:
    tries = Tries(_POLLS, within_s=_NODES_LIMIT_S)
    while behind := [node.id for node in admin.list_node_configs() if node.version < version]:
        may_go_on()
        if tries.has_ended:
            message = f"the properties are stored, and nodes {', '.join(map(str, behind))} have not taken them yet"
            raise RetryableError(message, hint="See whether these nodes are alive, then run the same command again.")
        tries.wait()
