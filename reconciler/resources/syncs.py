"""What a link keeps in step beside records, as its two clusters tell it: topics, group offsets, access rules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from reconciler.resources.sourcetopic import SourceTopic


@dataclass(frozen=True, slots=True)
class Offered:
    """A topic as a link to another cluster sees it."""

    topic: SourceTopic
    is_mirror: bool = False
    """It follows a topic itself."""
    is_readable: bool = True
    """The link may read it."""


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Where a group goes on reading a partition, and what it noted beside that."""

    offset: int
    metadata: str = ""


GroupOffsets: TypeAlias = Mapping[tuple[str, int], GroupPosition]
"""What a group has of topics, by (full name of the topic, partition)."""


@dataclass(frozen=True, slots=True)
class Brought:
    """What came of bringing a group's offsets to the cluster of the mirrors."""

    is_changed: bool = False
    is_clamped: bool = False
    """Some lay beyond what is mirrored yet: they were set to its end, and are to be brought again."""
    reading: tuple[str, ...] = ()
    """Mirrors that the group itself reads here; then nothing was brought."""
    own: tuple[str, ...] = ()
    """Mirrors of which the group has offsets of its own here; of others they were brought."""


RuleFields: TypeAlias = Mapping[str, tuple[str, ...]]
"""Access rules of one topic or namespace, path → operations (`resources/aclpaths.py`)."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Access rules by full names; what has none is absent."""

    topics: Mapping[str, RuleFields] = field(default_factory=dict)
    namespaces: Mapping[str, RuleFields] = field(default_factory=dict)
