"""Configs that all topics of a namespace set, said once on the namespace. Pure; what each topic gets stays the same."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.planning.wanted.policies import NEEDS_TIERING
from reconciler.resources.address import split_name, tiers_of

if TYPE_CHECKING:
    from collections.abc import Mapping

Configs: TypeAlias = dict[str, str]
Facts: TypeAlias = dict[str, object]
"""Config → value, and all that a topic says of tiering as one: half of it means something else."""

_TIERING: Final = ""
_SOME: Final = 2
"""Topics with which something can be common."""


@dataclass(frozen=True, slots=True)
class Shared:
    """The configs that namespaces and topics set themselves, by full name; the nearest tier wins."""

    namespaces: Mapping[str, Configs]
    topics: Mapping[str, Configs]


def share(topics: Mapping[str, Mapping[str, str]]) -> Shared:
    """Say what topics have in common on the lowest namespace that holds them all.

    A key moves up only where every topic below sets it; the value of most of them goes on the namespace, the others
    keep theirs. Nothing reaches a topic that does not set it.
    """
    facts = {name: _facts(configs) for name, configs in topics.items()}
    tallies = _tallies(facts)
    fullest = _fullest_below(tallies)
    held: dict[str, Facts] = {"": {}}
    own: dict[str, Configs] = {}
    for namespace in sorted(tallies, key=lambda each: (each.count(":"), each)):
        tally, above = tallies[namespace], held[namespace.rpartition(":")[0]]
        is_passed_through = fullest.get(namespace) == tally.topics
        said = {} if is_passed_through else tally.common(above)
        held[namespace] = {**above, **said}
        own[namespace] = _configs(said)
    rest: dict[str, Configs] = {}
    for name, found in facts.items():
        above = held[split_name(name)[0]]
        rest[name] = _configs({key: value for key, value in found.items() if above.get(key) != value})
    return Shared({name: configs for name, configs in own.items() if configs}, rest)


class _Tally:
    """How often each value of each key is set below a namespace."""

    def __init__(self) -> None:
        self.topics = 0
        self._values: defaultdict[str, Counter[object]] = defaultdict(Counter)

    def add(self, facts: Facts) -> None:
        self.topics += 1
        for key, value in facts.items():
            self._values[key][value] += 1

    def common(self, above: Facts) -> Facts:
        """Return what goes on the namespace itself: what all set, and most of them alike, if no tier above says so."""
        if self.topics < _SOME:
            return {}
        found: Facts = {}
        for key, values in self._values.items():
            [(value, most)] = values.most_common(1)
            is_set_by_all = sum(values.values()) == self.topics
            enough = self.topics if key == _TIERING else self.topics // 2 + 1
            if is_set_by_all and most >= enough and above.get(key) != value:
                found[key] = value
        return found


def _tallies(facts: Mapping[str, Facts]) -> dict[str, _Tally]:
    tallies: defaultdict[str, _Tally] = defaultdict(_Tally)
    for name, found in facts.items():
        for tier in tiers_of(split_name(name)[0]):
            tallies[tier].add(found)
    return tallies


def _fullest_below(tallies: Mapping[str, _Tally]) -> dict[str, int]:
    """Return the topics of the largest namespace right below each: where that is all of them, it holds them all."""
    found: dict[str, int] = {}
    for name, tally in tallies.items():
        above = name.rpartition(":")[0]
        found[above] = max(found.get(above, 0), tally.topics)
    return found


def _facts(configs: Mapping[str, str]) -> Facts:
    found: Facts = {key: value for key, value in configs.items() if key not in NEEDS_TIERING}
    tiering = tuple(sorted((key, value) for key, value in configs.items() if key in NEEDS_TIERING))
    return {**found, _TIERING: tiering} if tiering else found


def _configs(facts: Facts) -> Configs:
    found: Configs = {}
    for value in (value for value in facts.values() if isinstance(value, tuple)):
        found.update(value)
    found.update({key: value for key, value in facts.items() if isinstance(value, str)})
    return dict(sorted(found.items()))
