"""Namespaces in flat names: which prefixes of a broker's topics are legal as one, and worth being one. Pure.

What is found is the inverse of how names are made: every name, placed in the longest namespace whose prefix it
carries, gives the same flat name back (PLATFORMS, the physical name is the identity).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.resources.address import join_name, tiers_of
from reconciler.resources.names import MAX_NAMESPACE, MAX_TIER, check_namespace, check_topic_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

AT_LEAST: Final = 3
"""Topics that make a prefix a namespace: two that begin alike are a coincidence."""


@dataclass(frozen=True, slots=True)
class Spaces:
    """The namespaces of a cluster whose names are flat. `prefixes`: what names begin with → the namespace."""

    separator: str
    prefixes: Mapping[str, str]

    def placed(self, name: str) -> tuple[str, str]:
        """Return the longest namespace whose prefix a flat name carries, and what follows it."""
        at = name.rfind(self.separator) if self.prefixes else -1
        while at >= 0:
            namespace = self.prefixes.get(name[: at + 1])
            if namespace is not None:
                return namespace, name[at + 1 :]
            at = name.rfind(self.separator, 0, at)
        return "", name

    def full_name(self, name: str) -> str:
        """Return our name of a topic."""
        return join_name(*self.placed(name))

    def flat(self, full_name: str) -> str:
        """Return what the broker calls it."""
        return full_name.replace(":", self.separator)


def spaces_in(
    names: Iterable[str],
    separator: str,
    *,
    reserved: Iterable[str] = (),
    known: Iterable[str] = (),
    at_least: int = AT_LEAST,
) -> Spaces:
    """Return the namespaces of flat names, the same for any order of them.

    `reserved` are prefixes that access rules are about: each makes a namespace, whatever its topics count, if it is
    legal as one. `known` namespaces are there whether or not. With `at_least` 0 nothing else becomes one.
    """
    counts, spoiled = _counted(names, separator)
    found = {tier for namespace in known for tier in tiers_of(namespace)}
    for prefix in sorted(reserved):
        ends = [end for end, _ in _legal_prefixes(prefix[: prefix.rfind(separator) + 1], separator)]
        if ends and len(ends[-1]) == prefix.rfind(separator) + 1 and spoiled.isdisjoint(ends):
            found.update(_namespace(end, separator) for end in ends)
    for prefix in sorted(counts, key=lambda each: (each.count(separator), each)):
        above = _namespace(prefix, separator).rpartition(":")[0]
        if at_least and counts[prefix] >= at_least and prefix not in spoiled and (not above or above in found):
            found.add(_namespace(prefix, separator))
    return Spaces(separator, {tier.replace(":", separator) + separator: tier for tier in sorted(found)})


def _counted(names: Iterable[str], separator: str) -> tuple[Counter[str], set[str]]:
    """Return how many names carry each prefix that is legal, and the prefixes that would leave a name no name."""
    counts: Counter[str] = Counter()
    spoiled: set[str] = set()
    for name in set(names):
        for prefix, rest in _legal_prefixes(name, separator):
            counts[prefix] += 1
            if not _is_topic_name(rest):
                spoiled.add(prefix)
    return counts, spoiled


def _legal_prefixes(name: str, separator: str) -> Iterator[tuple[str, str]]:
    """Yield the prefixes of a name that may be namespaces, outermost first, with what follows each."""
    start = 0
    while (end := name.find(separator, start)) >= 0 and end <= MAX_NAMESPACE:
        if not _is_tier(name[start:end], separator):
            return  # what is below would lie in it
        yield name[: end + 1], name[end + 1 :]
        start = end + 1


def _is_tier(text: str, separator: str) -> bool:
    """Tell whether a part may be a tier. Under `_` one with a dot may not: `.` and `_` are one to a broker."""
    if not text or len(text) > MAX_TIER or (separator == "_" and "." in text):
        return False
    try:
        check_namespace(text)
    except ValueError:
        return False
    return True


def _is_topic_name(text: str) -> bool:
    try:
        check_topic_name(text)
    except ValueError:
        return False
    return True


def _namespace(prefix: str, separator: str) -> str:
    return prefix[:-1].replace(separator, ":")
