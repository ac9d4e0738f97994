"""Addresses: the lifelong names of what is declared, and patterns over them.

`cluster/<name>`, `policy/<name>`, and for everything that lives on a cluster `<kind>/<cluster>/<full name>`, where a
full name is `<namespace>:<name>` and the default namespace and its separator are left out.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, Literal, NewType

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
"""Order in which kinds are decided, created and printed: what others lean on comes first."""


def address_of(kind: AddressKind, cluster: str, full_name: str) -> Address:
    """Return the address of something that lives on a cluster."""
    return Address(f"{kind}/{cluster}/{full_name}")


def cluster_address(cluster: str) -> Address:
    """Return the address of a cluster."""
    return Address(f"cluster/{cluster}")


def kind_of(address: Address) -> str:
    """Return the part before the first slash."""
    return address.partition("/")[0]


def cluster_of(address: Address) -> str | None:
    """Return the cluster an address lives on or is; `None` for policies."""
    kind, _, rest = address.partition("/")
    if kind == "policy":
        return None
    return rest.partition("/")[0]


def full_name_of(address: Address) -> str:
    """Return what follows the cluster: `shop:eu:orders` of `topic/west/shop:eu:orders`."""
    return address.split("/", 2)[-1]


def join_name(namespace: str, name: str) -> str:
    """Return the full name of something in a namespace; in the default one it is the name itself."""
    return f"{namespace}:{name}" if namespace else name


def split_name(full_name: str) -> tuple[str, str]:
    """Return namespace and name of a full name."""
    namespace, _, name = full_name.rpartition(":")
    return namespace, name


def tiers_of(namespace: str) -> tuple[str, ...]:
    """Return a namespace and all tiers above it, outermost first: `a:b` → `a`, `a:b`; the default one has none."""
    parts = namespace.split(":") if namespace else []
    return tuple(":".join(parts[: depth + 1]) for depth in range(len(parts)))


def rank(address: Address) -> tuple[int, str]:
    """Sort key of the total order: kinds by what leans on what, then by name."""
    return RANKS.get(kind_of(address), len(RANKS)), address


def matches(pattern: str, address: str) -> bool:
    """Tell whether `pattern`, in which `*` stands for any characters (`/` and `:` too), names `address`."""
    return _compiled(pattern).fullmatch(address) is not None


@lru_cache(maxsize=4096)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(re.escape(part) for part in pattern.split("*")), re.DOTALL)
