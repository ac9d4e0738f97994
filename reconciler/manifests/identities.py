"""Which address a document is about, found before it is validated: overlays and duplicates go by it."""

from __future__ import annotations

from typing import Any, Final

from reconciler.resources.address import Address, join_name

_ON_NO_CLUSTER: Final = {"Cluster": "cluster", "TieringPolicy": "policy"}
_ON_CLUSTER: Final = {"Namespace": "namespace", "MirrorLink": "link"}
_IN_NAMESPACE: Final = {"Topic": "topic", "Mounting": "mounting"}


def identify(content: Any) -> Address | None:
    """Return the address a document declares, or `None` where its names are missing or no texts."""
    if not isinstance(content, dict) or not isinstance(content.get("metadata"), dict):
        return None
    kind, metadata = content.get("kind"), content["metadata"]
    name, cluster, namespace = metadata.get("name"), metadata.get("cluster"), metadata.get("namespace", "")
    if not isinstance(kind, str) or not isinstance(name, str):
        return None
    if kind in _ON_NO_CLUSTER:
        return Address(f"{_ON_NO_CLUSTER[kind]}/{name}")
    if not isinstance(cluster, str):
        return None
    if kind in _ON_CLUSTER:
        return Address(f"{_ON_CLUSTER[kind]}/{cluster}/{name}")
    if kind in _IN_NAMESPACE and isinstance(namespace, str):
        return Address(f"{_IN_NAMESPACE[kind]}/{cluster}/{join_name(namespace, name)}")
    return None
