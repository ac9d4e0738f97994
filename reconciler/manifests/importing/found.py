"""What the files of another tool say, whichever it is: topics, access rules, clusters, and what has no place here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Place(NamedTuple):
    """Where something is written; a state of Terraform has no lines worth naming."""

    file: str
    line: int | None = None

    def __str__(self) -> str:
        """Return `topics/orders.yaml:12`."""
        return self.file if self.line is None else f"{self.file}:{self.line}"


class Said(NamedTuple):
    """A value and where it is written."""

    value: Any
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundTopic:
    """One topic, by the name it has on the broker."""

    name: str
    place: Place
    cluster: str = ""
    """As the other tool calls it; empty where its files know of one only."""
    partitions: int | None = None
    replication_factor: int | None = None
    configs: Mapping[str, Said] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRule:
    """One access rule, as Kafka has them, in our words: `topics`, `describe-configs`, `allow`."""

    resource: str
    name: str
    is_prefix: bool
    principal: str
    operation: str
    place: Place
    permission: str = "allow"
    host: str = "*"
    cluster: str = ""

    def __str__(self) -> str:
        """Say it in one line."""
        what = f"{self.resource} {self.name}{'*' if self.is_prefix else ''}".strip()
        where = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal}{where} {self.operation} on {what}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCluster:
    """One cluster and how it is reached. Never a secret: `security` holds references where one belongs."""

    name: str
    place: Place
    bootstrap_servers: tuple[str, ...]
    cluster_id: str | None = None
    security: Mapping[str, str] = field(default_factory=dict)
    """The fields of a Cluster's `security`, as manifests spell them."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that was not carried over: where it is written, what it is, why."""

    place: Place
    subject: str
    """What it is about: `topic orders`."""
    field: str
    """Which field of it; empty where all of it is meant."""
    why: str
    hint: str = ""
    is_left_out: bool = True
    """Written otherwise it would have been carried over; else manifests have no words for it."""


@dataclass(slots=True)
class Reading:
    """All that was found in one run."""

    topics: list[FoundTopic] = field(default_factory=list)
    rules: list[FoundRule] = field(default_factory=list)
    clusters: list[FoundCluster] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    """Which files were read."""
    unread: list[str] = field(default_factory=list)
    """Which files beside them are none of the tool's."""
