"""Addresses of resources, patterns over them, and legal names.

Addresses are `cluster/<name>`, `policy/<name>` and `<kind>/<cluster>/<full name>`. A full name is `<namespace>:<name>`,
or `<name>` in the default namespace.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Final, Literal, NewType

Address = NewType("Address", str)

AddressKind = Literal["cluster", "policy", "namespace", "topic", "mounting", "link", "mirror"]

RANKS: Final[dict[str, int]] = {
    "policy": 0,
    "cluster": 1,
    "namespace": 2,
    "topic": 3,
    "mounting": 4,
    "link": 5,
    "mirror": 6,
}


def address_of(kind: AddressKind, cluster: str, full_name: str) -> Address:
    """Return `<kind>/<cluster>/<full name>`."""
    return Address(f"{kind}/{cluster}/{full_name}")


def cluster_address(cluster: str) -> Address:
    """Return `cluster/<name>`."""
    return Address(f"cluster/{cluster}")


def kind_of(address: Address) -> str:
    """Return the part before the first slash."""
    return address.partition("/")[0]


def cluster_of(address: Address) -> str | None:
    """Return the cluster of an address; `None` for policies."""
    kind, _, rest = address.partition("/")
    if kind == "policy":
        return None
    return rest.partition("/")[0]


def full_name_of(address: Address) -> str:
    """Return the part after the cluster: `shop:eu:orders` of `topic/west/shop:eu:orders`."""
    return address.split("/", 2)[-1]


def join_name(namespace: str, name: str) -> str:
    """Return the full name. In the default namespace, it is the name."""
    return f"{namespace}:{name}" if namespace else name


def split_name(full_name: str) -> tuple[str, str]:
    """Return the namespace and the name of a full name."""
    namespace, _, name = full_name.rpartition(":")
    return namespace, name


def list_levels(namespace: str) -> tuple[str, ...]:
    """Return a namespace's parents and itself: `a:b` → `a`, `a:b`; empty for the default namespace."""
    parts = namespace.split(":") if namespace else []
    return tuple(":".join(parts[: depth + 1]) for depth in range(len(parts)))


def build_sort_key(address: Address) -> tuple[int, str]:
    """Return the sort key: kind in dependency order, then address."""
    return RANKS.get(kind_of(address), len(RANKS)), address


def matches_pattern(pattern: str, address: str) -> bool:
    """Return whether `address` matches `pattern`; `*` matches any characters, including `/` and `:`."""
    return _compile_pattern(pattern).fullmatch(address) is not None


@lru_cache(maxsize=4096)
def _compile_pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)


# Legal names (Kafka, KIP-37).


MAX_NAME: Final = 249
"""Kafka's limit for the length of a topic name."""

MAX_NAMESPACE: Final = MAX_NAME - 2
"""Longest namespace; leaves room for `:` and one character."""

MAX_TIER: Final = 64

_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]+")
_TIER: Final = re.compile(rf"[a-zA-Z0-9.-]{{1,{MAX_TIER}}}")
PLAIN: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}")

LOCATION: Final = re.compile(
    r"([a-zA-Z0-9.-]+:)*[a-zA-Z0-9._-]{1,249}/[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}/[0-9]{1,19}"
)


def check_topic_name(name: str) -> str:
    """Return `name`. Raise `ValueError` unless it is a legal topic name."""
    if not _TOPIC.fullmatch(name) or name in {".", ".."} or len(name) > MAX_NAME:
        message = f"not a topic name: 1 to {MAX_NAME} of [a-zA-Z0-9._-], and not '.' or '..'"
        raise ValueError(message)
    return name


@lru_cache(maxsize=1024)
def check_namespace(namespace: str) -> str:
    """Return `namespace`. Raise `ValueError` unless it is empty or every level is legal."""
    tiers = namespace.split(":") if namespace else []
    if not all(_TIER.fullmatch(tier) and tier not in {".", ".."} for tier in tiers):
        message = f"not a namespace: tiers of 1 to {MAX_TIER} of [a-zA-Z0-9.-] joined by ':', and not '.' or '..'"
        raise ValueError(message)
    if len(namespace) > MAX_NAMESPACE:
        message = f"longer than {MAX_NAMESPACE} characters: no topic would fit in it, names have at most {MAX_NAME}"
        raise ValueError(message)
    return namespace


def check_full_name(full_name: str) -> str:
    """Return `full_name`. Raise `ValueError` unless it is a legal `<namespace>:<topic>` or `<topic>`."""
    namespace, colon, name = full_name.rpartition(":")
    check_namespace(namespace)
    check_topic_name(name)
    if colon and not namespace:
        message = "not a name: it has nothing before ':'"
        raise ValueError(message)
    if len(full_name) > MAX_NAME:
        message = f"namespace and topic together are longer than {MAX_NAME} characters"
        raise ValueError(message)
    return full_name


def check_plain_name(name: str) -> str:
    """Return `name`. Raise `ValueError` unless it can name a cluster, link, policy or workspace."""
    if not PLAIN.fullmatch(name):
        message = "not a name: a letter or digit, then up to 99 of [a-zA-Z0-9._-]"
        raise ValueError(message)
    return name


def check_topic_location(location: str) -> str:
    """Return `location`. Raise `ValueError` unless it is `<topic>/<cluster uuid>/<initial revision>`."""
    if not LOCATION.fullmatch(location):
        message = "not a location: <topic>/<cluster-uuid>/<revision>"
        raise ValueError(message)
    return location


def check_location_or_name(text: str) -> str:
    """Return `text`. Raise `ValueError` unless it is a location, or a topic name without namespace."""
    if ":" in text and "/" not in text:
        message = (
            "not a topic name: write it without its namespace, which is the mounting's own; for a topic of another "
            "namespace write the location, <topic>/<cluster-uuid>/<revision>"
        )
        raise ValueError(message)
    return check_topic_location(text) if "/" in text else check_topic_name(text)


_ON_NO_CLUSTER: Final = {"Cluster": "cluster", "TieringPolicy": "policy"}
_ON_CLUSTER: Final = {"Namespace": "namespace", "MirrorLink": "link"}
_IN_NAMESPACE: Final = {"Topic": "topic", "Mounting": "mounting"}


def find_document_address(content: Any) -> Address | None:
    """Return the address that an unvalidated document declares; `None` without valid names."""
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


def list_containers(address: Address) -> tuple[Address, ...]:
    """Return the cluster and the namespaces that contain an address."""
    cluster, kind = cluster_of(address), kind_of(address)
    if cluster is None or kind == "cluster":
        return ()
    name = full_name_of(address)
    levels = list_levels(name)[:-1] if kind == "namespace" else list_levels(split_name(name)[0])
    spaces = () if kind == "link" else tuple(address_of("namespace", cluster, level) for level in levels)
    return (cluster_address(cluster), *spaces)
