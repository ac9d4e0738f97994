"""Resources in the short form of the cases: `{topic: "shop:orders", partitions: 3}`."""

from __future__ import annotations

from ast import literal_eval
from dataclasses import fields
from functools import lru_cache
from typing import Any

from reconciler.errors import UserError
from reconciler.resources.address import Address, join_name, split_name
from reconciler.resources.inventory import (
    DeclaredResource,
    LiveCluster,
    LiveMirror,
    LiveTopic,
    Observed,
    ObservedStorage,
    Recorded,
    RemoteRemains,
    Resource,
    read_resource,
)
from reconciler.resources.mirror_link import MirrorTopic
from tests.planning.world import topic_from

CLUSTER_ID = "-id"


def cluster(name: str, **spec: Any) -> Resource:
    return read_resource(
        {
            "kind": "Cluster",
            "metadata": {"name": name},
            "spec": {"provider": "embedded", "embedded": {"root": f"memory://{name}"}, **spec},
        }
    )


def resource(item: dict[str, Any]) -> Resource:
    """Return the resource of a short form; the same form gives the same one."""
    return _resource(repr({key: value for key, value in item.items() if key not in {"is", "at"}}))


@lru_cache(maxsize=4096)
def _resource(written: str) -> Resource:
    return _read(literal_eval(written))


def _read(item: dict[str, Any]) -> Resource:
    """Read one short form: its first key is the kind, `where` the cluster, `labels` the labels, the rest its spec."""
    kind, name = next(iter(item.items()))
    spec = {key: value for key, value in item.items() if key not in {kind, "where", "labels"}}
    on, labels = item.get("where", "west"), item.get("labels", {})
    match kind:
        case "cluster":
            return cluster(name, **spec)
        case "policy":
            return read_resource({"kind": "TieringPolicy", "metadata": {"name": name}, "spec": spec})
        case "namespace":
            metadata = {"name": name, "cluster": on, "labels": labels}
            return read_resource({"kind": "Namespace", "metadata": metadata, "spec": spec})
        case "topic":
            namespace, own = split_name(name)
            metadata = {"name": own, "namespace": namespace, "cluster": on, "labels": labels}
            if not spec.keys() & {"recoverFrom", "readReplicaOf"}:
                spec.setdefault("partitions", 1)
            return read_resource({"kind": "Topic", "metadata": metadata, "spec": spec})
        case "mounting":
            namespace, own = split_name(name)
            metadata = {"name": own, "namespace": namespace, "cluster": on}
            return read_resource({"kind": "Mounting", "metadata": metadata, "spec": spec})
        case "link":
            spec["mirrorTopics"] = [
                {"source": mirror} if isinstance(mirror, str) else mirror for mirror in spec.pop("mirrors", [])
            ]
            metadata = {"name": name, "cluster": on, "labels": labels}
            return read_resource({"kind": "MirrorLink", "metadata": metadata, "spec": spec})
        case "mirror":
            return read_resource(
                {"kind": "MirrorTopic", "cluster": on, "name": name, "source": name, "sourceCluster": "west", **spec}
            )
        case _:
            message = f"no such kind: {kind}"
            raise ValueError(message)


def declared(item: dict[str, Any]) -> tuple[Address, DeclaredResource]:
    found = resource(item)
    return found.address, DeclaredResource(found, item.get("at", "manifests/all.yaml:1"))


def recorded(item: dict[str, Any]) -> tuple[Address, Recorded]:
    found = resource(item)
    said = {"incarnation": _incarnation(item), "run": "run-0", **item.get("is", {})}
    return found.address, Recorded(found, **said)


def observed(item: dict[str, Any]) -> tuple[Address, Observed]:
    found = resource(item)
    said = {"incarnation": _incarnation(item), **item.get("is", {})}
    if "storage" in said:
        said["storage"] = _storage(**said["storage"])
    if isinstance(said.get("legacy"), str):
        said["legacy"] = RemoteRemains(said["legacy"], is_deleted=False)
    if isinstance(found, MirrorTopic):
        said.setdefault("state", "ACTIVE")
        synced = said.pop("synced", {})
        if said["state"] != "STOPPED":
            said["topic_if_stopped"] = topic_from(found, {**synced, **found.configs})
    for part in (LiveCluster, LiveTopic, LiveMirror):
        own = {name.name: said.pop(name.name) for name in fields(part) if name.name in said}
        said[part.__name__.removeprefix("Live").lower()] = part(**own)
    return found.address, Observed(found, **said)


def _storage(problem: str | None = None, tiered: tuple[str, ...] = (), **said: str | None) -> ObservedStorage:
    error = None if problem is None else UserError(problem, hint="Ask for it.")
    return ObservedStorage(tiered=tuple(tiered), problem=error, **said)


def _incarnation(item: dict[str, Any]) -> str | None:
    kind, name = next(iter(item.items()))
    if kind == "cluster":
        return f"{name}{CLUSTER_ID}"
    if kind == "mounting":  # that of its topic
        called = join_name(split_name(name)[0], item.get("as", split_name(name)[1]))
        return f"topic {called}" if item.get("state") == "mounted" else None
    return None if kind == "namespace" else f"{kind} {name}"
