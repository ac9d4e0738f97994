"""Manifests that say all that their kinds can, and the same manifests with one field less."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args

from pydantic import BaseModel

from reconciler.resources.cluster import Cluster
from reconciler.resources.mirror_link import MirrorLink
from reconciler.resources.mount import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tiering_policy import TieringPolicy
from reconciler.resources.topic import Topic

Documents: TypeAlias = Mapping[str, dict[str, Any]]
"""Manifests, each with a word of the test for it."""
FieldPath: TypeAlias = tuple[str | int, ...]

KINDS: Final[tuple[type[BaseModel], ...]] = (Cluster, Namespace, Topic, TieringPolicy, Mounting, MirrorLink)
CHECKOUT: Final = {"principal": "User:checkout", "permission": "allow", "operations": ["read"], "host": "10.0.0.7"}
SYNCED: Final = (
    *("cleanup.policy", "max.message.bytes", "message.timestamp.difference.max.ms", "message.timestamp.type"),
    "retention.ms",
)


def manifest(kind: str, cluster: str, name: str, /, **spec: Any) -> dict[str, Any]:
    """Return a manifest; a name such as `shop:orders` has its namespace, except for a namespace."""
    namespace, _, own = name.rpartition(":")
    named = {"name": name} if kind == "Namespace" or not namespace else {"name": own, "namespace": namespace}
    placed = {"cluster": cluster} if cluster else {}
    return {"apiVersion": "reconciler/v1", "kind": kind, "metadata": {**named, **placed}, "spec": spec}


def write(documents: Documents) -> None:
    """Write manifests as one file: JSON is YAML."""
    Path("manifests").mkdir(exist_ok=True)
    Path("manifests/all.yaml").write_text("\n---\n".join(json.dumps(each) for each in documents.values()))


def without(documents: Documents, word: str, path: FieldPath) -> Documents:
    """Return the same manifests, one of them without a field."""
    after = copy.deepcopy(documents)
    place: Any = after[word]
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return after


def fields_in(documents: Documents) -> Iterator[tuple[str, FieldPath]]:
    """Yield the way to each field that the specs of manifests have, those in lists too."""
    for word, document in documents.items():
        for path in _paths_in(document["spec"], ("spec",)):
            yield word, path


def _paths_in(value: object, at: FieldPath) -> Iterator[FieldPath]:
    steps: Iterable[tuple[str | int, object]] = ()
    if isinstance(value, dict):
        yield from ((*at, key) for key in value)
        steps = value.items()
    elif isinstance(value, list):
        steps = enumerate(value)
    for step, item in steps:
        yield from _paths_in(item, (*at, step))


def dotted(word: str, path: FieldPath) -> str:
    return ".".join(map(str, (word, *path)))


def unsaid(documents: Documents, left_out: Iterable[str]) -> list[str]:
    """Return the fields that the models of all kinds have, and none of the manifests says, as `Kind.spec.field`."""
    said = {
        ".".join((documents[word]["kind"], *(step for step in path if isinstance(step, str))))
        for word, path in fields_in(documents)
    }
    known = {
        ".".join((kind.__name__, *path)) for kind in KINDS for path in _paths_of(kind.model_fields["spec"], ("spec",))
    }
    return sorted(each for each in known - said if not each.startswith(tuple(left_out)))


def _paths_of(field: Any, at: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for model in _models_in(field.annotation):
        for name, inner in model.model_fields.items():
            path = (*at, inner.alias or name)
            yield path
            yield from _paths_of(inner, path)


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)
