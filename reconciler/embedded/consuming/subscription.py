"""Which topics a consumer reads: those it names, or all whose full name matches a regular expression (KIP-37).

A pattern is matched against the whole full name: `.*` sees all namespaces, and `shop:.*` all below `shop`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.lookups import topic_named
from reconciler.errors import UserError
from reconciler.records.patterns import matching

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog


@dataclass(frozen=True, slots=True)
class Subscription:
    """Names, or a pattern; never both."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    @classmethod
    def of(cls, topics: Iterable[str] | None, pattern: str | None) -> Subscription:
        """Return what is asked for.

        Raises:
            UserError: It is nothing, or both, or the pattern is no regular expression.
        """
        if isinstance(topics, str):
            raise UserError(f"{topics!r} is one topic, not several", hint=f"Write it as topics=[{topics!r}].")
        names = tuple(dict.fromkeys(topics or ()))
        if bool(names) == (pattern is not None):
            raise UserError(
                "what to read is not said, or said twice", hint="Give topics, or a pattern over full names."
            )
        if pattern is not None:
            matching(pattern, [])
        return cls(names, pattern)

    def topics(self, catalog: Catalog) -> dict[str, TopicEntry]:
        """Return the topics it means now, by full name, sorted.

        Raises:
            InvalidNamespaceError: A topic is named whose namespace does not exist.
            UserError: A topic is named that does not exist.
        """
        if self.pattern is None:
            return {name: topic_named(catalog, name) for name in sorted(self.names)}
        return {name: catalog.topics[name] for name in matching(self.pattern, sorted(catalog.topics))}
