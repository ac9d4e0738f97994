"""How contract tests speak to a provider: resources and actions in one line, and what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from reconciler.planning.actions import Change, ControlAction, Create, Delete, Update
from reconciler.providers.protocol import CompletedAction, FailedAction, Outcome, Provider, Scope
from reconciler.records.schema import INPUT_SCHEMA
from reconciler.resources.address import full_name_of, kind_of
from reconciler.resources.inventory import Observed, Resource, read_resource
from tests.contracts.names import is_own, own

if TYPE_CHECKING:
    from reconciler.errors import ReconcilerError
    from reconciler.resources.address import Address


def topic(name: str, namespace: str = "", **spec: Any) -> Resource:
    place = {"name": name, "namespace": own(namespace)} if namespace else {"name": own(name)}
    metadata = {**place, "cluster": "west"}
    return read_resource({"kind": "Topic", "metadata": metadata, "spec": {"partitions": 3, **spec}})


def namespace(name: str, **configs: str) -> Resource:
    keys = {key.replace("_", "."): value for key, value in configs.items()}
    metadata = {"name": own(name), "cluster": "west"}
    return read_resource({"kind": "Namespace", "metadata": metadata, "spec": {"configs": keys}})


def create(resource: Resource, **parameters: Any) -> Create:
    return Create(address=resource.address, after=resource, parameters=parameters)


def delete(resource: Resource, incarnation: str | None = None) -> Delete:
    return Delete(address=resource.address, before=resource, incarnation=incarnation)


def update(resource: Resource, *changes: Change) -> Update:
    return Update(address=resource.address, before=resource, after=resource, changes=changes)


def apply(provider: Provider, *actions: ControlAction) -> dict[str, Outcome]:
    outcomes = list(provider.apply(actions))
    assert [outcome.id for outcome in outcomes] == [action.id for action in actions]
    return {outcome.id: outcome for outcome in outcomes}


def done(provider: Provider, *actions: ControlAction) -> Sequence[Outcome]:
    outcomes = list(apply(provider, *actions).values())
    assert [outcome for outcome in outcomes if not isinstance(outcome, CompletedAction)] == []
    return outcomes


def refused(provider: Provider, action: ControlAction) -> ReconcilerError:
    outcome = apply(provider, action)[action.id]
    assert isinstance(outcome, FailedAction)
    return outcome.error


def inputs(*values: str, partition: int) -> pa.RecordBatch:
    """Return new records of one partition, whole."""
    rows = [{"partition": partition, "value": value.encode(), "headers": []} for value in values]
    return pa.RecordBatch.from_pylist(rows, schema=INPUT_SCHEMA)


def look(provider: Provider, *recorded: Resource) -> dict[Address, Observed]:
    """Return the cluster, and the topics and namespaces of this run; `recorded` is what we have applied."""
    seen = provider.observe(Scope(recorded=frozenset(resource.address for resource in recorded)))
    return {
        address: found
        for address, found in seen.items()
        if not found.is_internal and (kind_of(address) == "cluster" or is_own(full_name_of(address)))
    }
