"""What a cluster has, in four requests whatever the number of its topics, as resources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from reconciler.errors import NotAuthorizedError
from reconciler.providers.kafka.changing.replicas import reassigning, under_way
from reconciler.providers.kafka.metadata import TopicSeen, own_values
from reconciler.providers.kafka.permitting import placed
from reconciler.providers.kafka.translate import LEDGER, Models, is_internal
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of, kind_of, tiers_of
from reconciler.resources.inventory import Observed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reconciler.providers.base import Scope
    from reconciler.providers.kafka.client import KafkaClient
    from reconciler.providers.kafka.naming import Naming
    from reconciler.providers.kafka.permitting import Placed
    from reconciler.resources.bindings import Binding

_UNAUTHORIZED: Final = 29
"""What brokers answer about a topic that is asked for by name and may not be described, be it there or not."""


@dataclass(frozen=True, slots=True)
class Looking:
    """One look at a cluster."""

    client: KafkaClient
    cluster: str
    naming: Naming
    scope: Scope
    known: frozenset[Address]
    """What is declared or recorded, here or elsewhere."""
    is_wanted: Callable[[str], bool] | None

    def topics(self) -> tuple[dict[str, TopicSeen], dict[str, Mapping[str, str]]]:
        """Return every topic that shows, by its flat name, and what each sets itself.

        What is declared or recorded and does not show is asked for by name: only then brokers tell what is hidden.
        """
        found = under_way(self.client.topics(self._names()), reassigning(self.client))
        silent = [
            name
            for address in sorted(self.known)
            if kind_of(address) == "topic" and cluster_of(address) == self.cluster
            if (name := self.naming.physical(full_name_of(address))) not in found
        ]
        found |= {name: seen for name, seen in self.client.topics(silent).items() if seen.error == _UNAUTHORIZED}
        shown = [name for name, seen in sorted(found.items()) if not seen.error]
        configs: dict[str, Mapping[str, str]] = {}
        for name, values in self.client.configs(shown):
            if isinstance(values, int):
                found[name] = _refused(found[name], values)
            else:
                configs[name] = own_values(values)
        return found, configs

    def observed(
        self, topics: Mapping[str, TopicSeen], configs: Mapping[str, Mapping[str, str]], bindings: Sequence[Binding]
    ) -> Iterator[tuple[Address, Observed]]:
        """Yield namespaces and topics with the rules that are theirs."""
        rules, models = placed(bindings, self.naming, topics.keys()), Models(self.cluster)
        for name in self._namespaces(topics, rules):
            namespace = models.namespace(name, rules.namespaces.get(name, ()))
            yield namespace.address, Observed(namespace, physical_name=self.naming.prefix(name))
        for name in sorted(topics):
            seen = topics[name]
            if seen.error and seen.error != _UNAUTHORIZED:
                continue  # Being deleted, or gone since.
            full_name = self.naming.full_name(name)
            address = address_of("topic", self.cluster, full_name)
            if self.is_wanted is not None and not self.is_wanted(address):
                continue
            resource = models.topic(full_name, seen, configs.get(name, {}), rules.topics.get(full_name, ()))
            yield (
                address,
                Observed(
                    resource,
                    seen.id,
                    name,
                    is_internal=is_internal(seen),
                    hidden=_hidden(self.cluster, name) if seen.error else None,
                ),
            )

    def _names(self) -> list[str] | None:
        """Return the topics that are asked for, where none is by a pattern; `None`: all."""
        patterns = self.scope.patterns
        if not patterns or any("*" in pattern for pattern in patterns):
            return None
        named = [Address(pattern) for pattern in patterns if pattern.startswith(("topic/", "mirror/"))]
        return [*(self.naming.physical(full_name_of(address)) for address in named), LEDGER]

    def _namespaces(self, topics: Mapping[str, TopicSeen], rules: Placed) -> Iterator[str]:
        """Yield the known namespaces that are there: those recorded, or with a topic or rule of their prefix."""
        there = {
            tier for name, seen in topics.items() if not seen.error for tier in tiers_of(self.naming.placed(name)[0])
        }
        there.update(tier for name in rules.namespaces for tier in tiers_of(name))
        there.update(
            full_name_of(address)
            for address in self.scope.recorded
            if kind_of(address) == "namespace" and cluster_of(address) == self.cluster
        )
        for name in sorted(there):
            if self.is_wanted is None or self.is_wanted(address_of("namespace", self.cluster, name)):
                yield name


def _refused(seen: TopicSeen, code: int) -> TopicSeen:
    return TopicSeen(seen.name, seen.id, seen.is_internal, seen.replicas, code)


def _hidden(cluster: str, name: str) -> NotAuthorizedError:
    return NotAuthorizedError(
        f"cluster {cluster}: whoever acts may not describe topic {name} and its configs",
        hint="Allow DESCRIBE and DESCRIBE_CONFIGS on it, or leave it out with --exclude.",
    )
