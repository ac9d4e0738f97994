"""Our names and the flat ones of a broker. Pure.

`shop:eu:orders` is `shop.eu.orders` there. The flat name is the identity: read back, it belongs to the longest known
namespace whose prefix it carries, else to the default one (facts, 2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.resources.address import full_name_of, join_name, kind_of, split_name, tiers_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from reconciler.resources.address import Address

_NAMED = frozenset({"topic", "mirror", "mounting"})


@dataclass(frozen=True, slots=True)
class Naming:
    """The names of one cluster. `prefixes`: what names of a namespace begin with → the namespace."""

    separator: str
    prefixes: Mapping[str, str]

    def physical(self, full_name: str) -> str:
        """Return what the broker calls a topic."""
        return full_name.replace(":", self.separator)

    def prefix(self, namespace: str) -> str:
        """Return what every name of a namespace begins with; it ends with the separator."""
        return namespace.replace(":", self.separator) + self.separator if namespace else ""

    def full_name(self, physical: str) -> str:
        """Return our name of a topic of the broker."""
        namespace, rest = self.placed(physical)
        return join_name(namespace, rest) if rest else physical

    def placed(self, name: str) -> tuple[str, str]:
        """Return the longest known namespace whose prefix a name carries, and what follows it."""
        if self.prefixes:
            at = name.rfind(self.separator)
            while at >= 0:
                namespace = self.prefixes.get(name[: at + 1])
                if namespace is not None:
                    return namespace, name[at + 1 :]
                at = name.rfind(self.separator, 0, at)
        return "", name


def naming_of(separator: str, known: Iterable[Address]) -> Naming:
    """Return the names of a cluster of which these addresses are declared or recorded."""
    namespaces: set[str] = set()
    for address in known:
        if kind_of(address) == "namespace":
            namespaces.update(tiers_of(full_name_of(address)))
        elif kind_of(address) in _NAMED:
            namespaces.update(tiers_of(split_name(full_name_of(address))[0]))
    bare = Naming(separator, {})
    return Naming(separator, {bare.prefix(namespace): namespace for namespace in sorted(namespaces)})
