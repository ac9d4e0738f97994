"""The metadata block of each kind of manifest."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from reconciler.resources.base import Model
from reconciler.resources.names import NamespaceName, PlainName, TopicName

Labels = Annotated[
    dict[str, str], Field(default_factory=dict, description="Free labels, for `-l` selectors and rules.")
]


class NameOnly(Model):
    """Metadata of what does not live on a cluster."""

    name: PlainName = Field(description="Its lifelong name.", examples=["west"])
    labels: Labels


class OnCluster(Model):
    """Metadata of what lives on a cluster, outside any namespace."""

    name: PlainName = Field(description="Its lifelong name on the cluster.", examples=["from-west"])
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["east"])
    labels: Labels


class OfNamespace(Model):
    """Metadata of a namespace."""

    name: NamespaceName = Field(description="All tiers, joined by ':'.", examples=["shop:eu"])
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["west"])
    labels: Labels


class InNamespace(Model):
    """Metadata of what lives in a namespace of a cluster."""

    name: TopicName = Field(description="Its name within the namespace.", examples=["orders"])
    namespace: NamespaceName = Field(
        default="", description="The namespace; '' is the default one.", examples=["shop:eu"]
    )
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["west"])
    labels: Labels
