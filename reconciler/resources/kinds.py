"""The closed union of what can be declared."""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

from pydantic import ConfigDict, Field, TypeAdapter

from reconciler.resources.cluster import Cluster
from reconciler.resources.mirrorlink import MirrorLink, MirrorTopic
from reconciler.resources.mounting import Mounting
from reconciler.resources.namespace import Namespace
from reconciler.resources.tieringpolicy import TieringPolicy
from reconciler.resources.topic import Topic
from reconciler.resources.workspace import Workspace

Resource: TypeAlias = Cluster | Namespace | Topic | TieringPolicy | Mounting | MirrorLink | MirrorTopic

AnyResource: TypeAlias = Annotated[Resource, Field(discriminator="kind")]

RESOURCE: Final[TypeAdapter[Resource]] = TypeAdapter(AnyResource, config=ConfigDict(defer_build=True))
"""Reads one resource of any kind from Python or JSON values."""

WRITABLE: Final[dict[str, type[Workspace | Resource]]] = {
    "Workspace": Workspace,
    "Cluster": Cluster,
    "Namespace": Namespace,
    "Topic": Topic,
    "TieringPolicy": TieringPolicy,
    "Mounting": Mounting,
    "MirrorLink": MirrorLink,
}
"""What may stand as a `kind` in a manifest."""
