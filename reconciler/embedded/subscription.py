"""Which topics a consumer reads: those it names, or all whose full name matches a regular expression (KIP-37).

A pattern is matched against the whole full name, as Java's `Pattern.matches` does: `.*` sees all namespaces, and
`shop:.*` all below `shop`. It is RE2, as Kafka's broker-side subscriptions are: no pattern takes more than linear time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from reconciler.embedded.lookups import topic_named
from reconciler.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reconciler.embedded.catalog import Catalog
    from reconciler.embedded.entries import TopicEntry

LONGEST_PATTERN: Final = 10_000


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


def matching(pattern: str, full_names: list[str]) -> list[str]:
    """Return the names that match a pattern as a whole.

    Raises:
        UserError: It is no regular expression, or too large.
    """
    if len(pattern) > LONGEST_PATTERN:
        message = f"a regular expression of {len(pattern):,} characters"
        raise UserError(message, hint=f"It has at most {LONGEST_PATTERN:,}.")
    try:
        pc.match_substring_regex(pa.array([""]), pattern)  # alone first: a ')' must not end the group around it
        names = pa.array(full_names, pa.string())
        is_match = pc.match_substring_regex(names, rf"\A(?:{pattern})\z")
    except (pa.ArrowException, UnicodeEncodeError) as error:
        message = f"{pattern!r} is no regular expression: {str(error).removeprefix('Invalid regular expression: ')}"
        raise UserError(message, hint="Example: shop:eu:.* (RE2: without look-around and back-references).") from error
    return [name for name, is_wanted in zip(full_names, is_match.to_pylist(), strict=True) if is_wanted]
