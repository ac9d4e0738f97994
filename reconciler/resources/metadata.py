"""The metadata block of each kind of manifest."""

from __future__ import annotations

from typing import Final

from pydantic import Field

from reconciler.resources.base import Model
from reconciler.resources.names import NamespaceName, PlainName, TopicName

_ABOUT_LABELS: Final = "Free labels, for `-l` selectors and rules."
_A_LABEL: Final = {"team": "checkout"}


class NameOnly(Model):
    """Metadata of what does not live on a cluster."""

    name: PlainName = Field(description="Its lifelong name.", examples=["west"])
    labels: dict[str, str] = Field(default_factory=dict, description=_ABOUT_LABELS, examples=[_A_LABEL])


class OnCluster(Model):
    """Metadata of what lives on a cluster, outside any namespace."""

    name: PlainName = Field(description="Its lifelong name on the cluster.", examples=["from-west"])
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["east"])
    labels: dict[str, str] = Field(default_factory=dict, description=_ABOUT_LABELS, examples=[_A_LABEL])


class OfNamespace(Model):
    """Metadata of a namespace."""

    name: NamespaceName = Field(description="All tiers, joined by ':'.", examples=["shop:eu"])
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["west"])
    labels: dict[str, str] = Field(default_factory=dict, description=_ABOUT_LABELS, examples=[_A_LABEL])


class InNamespace(Model):
    """Metadata of what lives in a namespace of a cluster."""

    name: TopicName = Field(description="Its name within the namespace.", examples=["orders"])
    namespace: NamespaceName = Field(
        default="", description="The namespace; '' is the default one.", examples=["shop:eu"]
    )
    cluster: PlainName = Field(description="The Cluster it lives on.", examples=["west"])
    labels: dict[str, str] = Field(default_factory=dict, description=_ABOUT_LABELS, examples=[_A_LABEL])
