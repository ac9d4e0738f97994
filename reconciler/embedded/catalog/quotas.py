"""Quotas: how many topics and partitions may lie below a namespace, counted within the commit that adds one.

Bytes are not counted here: no commit knows them. Whoever plans measures them first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.errors import QuotaExceededError
from reconciler.resources.address import split_name, tiers_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reconciler.embedded.catalog.entries import NamespaceEntry, QuotaEntry, TopicEntry


@dataclass(frozen=True, slots=True)
class Usage:
    """What lies in a namespace and below it."""

    topics: int = 0
    partitions: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.topics + other.topics, self.partitions + other.partitions)

    def __sub__(self, other: Usage) -> Usage:
        return Usage(self.topics - other.topics, self.partitions - other.partitions)

    @classmethod
    def of(cls, topic: TopicEntry | None) -> Usage:
        """Return what one topic takes; one that is not there takes nothing."""
        return cls() if topic is None else cls(1, topic.partitions)


class Usages:
    """What lies below namespaces of a draft: counted once for each that is asked about, then kept while it changes."""

    def __init__(self) -> None:
        self._below: dict[str, Usage] = {}

    def below(self, namespace: str, topics: Mapping[str, TopicEntry]) -> Usage:
        """Return what lies in a namespace and below it."""
        found = self._below.get(namespace)
        if found is None:
            prefix = f"{namespace}:"
            held = [topic for name, topic in topics.items() if name.startswith(prefix)]
            found = self._below[namespace] = Usage(len(held), sum(topic.partitions for topic in held))
        return found

    def replaced(self, full_name: str, before: TopicEntry | None, after: TopicEntry | None) -> None:
        """Take note that a topic is made, changed or gone."""
        if self._below:
            for tier in tiers_of(split_name(full_name)[0]):
                if tier in self._below:
                    self._below[tier] += Usage.of(after) - Usage.of(before)


def check_quotas(
    namespaces: Mapping[str, NamespaceEntry],
    usage_below: Callable[[str], Usage],
    full_name: str,
    added: Usage,
    *,
    leaving: str = "",
) -> None:
    """Refuse what would be more than a tier above a topic may hold; tiers of the namespace it is `leaving` count it.

    `usage_below` says what lies in a namespace and below it, before the commit.

    Raises:
        QuotaExceededError: Says which quota, how much there is and how much it would be.
    """
    for tier in tiers_of(split_name(full_name)[0]):
        entry = namespaces.get(tier)
        if entry is None or entry.quotas is None or f"{leaving}:".startswith(f"{tier}:"):
            continue
        held = usage_below(tier)
        for word, limit, before, after in _counted(entry.quotas, held, held + added):
            if limit is not None and after > max(limit, before):
                message = f"namespace {tier} may hold {limit:,} {word}: with {full_name} it would be {after:,}"
                hint = f"Raise quotas.{word} of the namespace, or delete some; it holds {before:,} now."
                raise QuotaExceededError(message, hint=hint)


def _counted(quotas: QuotaEntry, held: Usage, after: Usage) -> tuple[tuple[str, int | None, int, int], ...]:
    return (
        ("topics", quotas.topics, held.topics, after.topics),
        ("partitions", quotas.partitions, held.partitions, after.partitions),
    )
