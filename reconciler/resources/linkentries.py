"""What a destination keeps of a link and of each of its mirrors: states, and what is under way or wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

ACTIVE: Final = "ACTIVE"
STOPPED: Final = "STOPPED"


@dataclass(frozen=True, slots=True)
class TroubleEntry:
    """What is wrong, by its code and in words, and since when."""

    code: str
    message: str
    since_ms: int

    def to_json(self) -> Json:
        """Return what is kept."""
        return {"code": self.code, "message": self.message, "since_ms": self.since_ms}

    @classmethod
    def from_json(cls, kept: Json) -> TroubleEntry:
        """Read it back."""
        return cls(kept["code"], kept["message"], kept["since_ms"])


@dataclass(frozen=True, slots=True)
class OperationEntry:
    """A promotion, reversal or restore that was asked for; `id` is the same on both clusters.

    `ends` are the offsets a promotion or reversal must reach, or where a restore cuts; `None` until they are known.
    """

    id: str
    verb: str
    ends: Mapping[int, int] | None = None

    def to_json(self) -> Json:
        """Return what is kept."""
        return {"id": self.id, "verb": self.verb, "ends": _kept(self.ends)}

    @classmethod
    def from_json(cls, kept: Json) -> OperationEntry:
        """Read it back."""
        return cls(kept["id"], kept["verb"], _offsets(kept["ends"]))


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """What makes a topic a mirror: its link, its source, known by id from the first look at it, and its state.

    `state` is the one it keeps; what its link imposes on it is not written into every mirror (`mirroring.status_of`).
    `since_ms` is when it came into it. `stopped_by` is the verb that ended it. `begins` is where its partitions began,
    where that is not the beginning of its source's. `rules` are the access rules that its link brought, by path.
    `ended` are the operations that were over last, by id: whoever comes late does not begin one of them again.
    """

    link_id: str
    source: str
    source_topic_id: str | None = None
    state: str = ACTIVE
    first_copy_done: bool = False
    since_ms: int = 0
    operation: OperationEntry | None = None
    trouble: TroubleEntry | None = None
    stopped_by: str | None = None
    is_automatic: bool = False
    begins: Mapping[int, int] | None = None
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ended: tuple[str, ...] = ()

    @property
    def is_stopped(self) -> bool:
        """Tell whether its mirroring is over, and it is an ordinary topic that has a record."""
        return self.state == STOPPED

    def to_json(self) -> Json:
        """Return what is kept."""
        kept: Json = {
            "link_id": self.link_id,
            "source": self.source,
            "source_topic_id": self.source_topic_id,
            "state": self.state,
            "first_copy_done": self.first_copy_done,
            "since_ms": self.since_ms,
        }
        if self.operation is not None:
            kept["operation"] = self.operation.to_json()
        if self.trouble is not None:
            kept["trouble"] = self.trouble.to_json()
        if self.stopped_by is not None:
            kept["stopped_by"] = self.stopped_by
        if self.is_automatic:
            kept["is_automatic"] = True
        if self.begins is not None:
            kept["begins"] = _kept(self.begins)
        if self.rules:
            kept["rules"] = _listed(self.rules)
        if self.ended:
            kept["ended"] = list(self.ended)
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> MirrorEntry:
        """Read it back."""
        operation, trouble = kept.get("operation"), kept.get("trouble")
        return cls(
            link_id=kept["link_id"],
            source=kept["source"],
            source_topic_id=kept["source_topic_id"],
            state=kept["state"],
            first_copy_done=kept["first_copy_done"],
            since_ms=kept.get("since_ms", 0),
            operation=None if operation is None else OperationEntry.from_json(operation),
            trouble=None if trouble is None else TroubleEntry.from_json(trouble),
            stopped_by=kept.get("stopped_by"),
            is_automatic=kept.get("is_automatic", False),
            begins=_offsets(kept.get("begins")),
            rules=_rules(kept.get("rules", {})),
            ended=tuple(kept.get("ended", ())),
        )


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """A link on its destination: where records come from. `declared` is the rest of what was asked for, as given.

    `status` is ACTIVE, UNAVAILABLE or FAILED, with the `trouble` that made it so; that it is paused is declared.
    `tasks` are the troubles of what it does beside copying. `source_cluster_id`: the cluster it was made to.
    `rules` are the access rules it brought to namespaces, by path.
    """

    id: str
    source_cluster: str
    declared: Json = field(default_factory=dict)
    status: str = ACTIVE
    trouble: TroubleEntry | None = None
    tasks: Mapping[str, TroubleEntry] = field(default_factory=dict)
    source_cluster_id: str | None = None
    rules: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return what is kept."""
        kept: Json = {"id": self.id, "source_cluster": self.source_cluster, "declared": self.declared}
        if self.status != ACTIVE:
            kept["status"] = self.status
        if self.trouble is not None:
            kept["trouble"] = self.trouble.to_json()
        if self.tasks:
            kept["tasks"] = {name: trouble.to_json() for name, trouble in self.tasks.items()}
        if self.source_cluster_id is not None:
            kept["source_cluster_id"] = self.source_cluster_id
        if self.rules:
            kept["rules"] = {namespace: _listed(rules) for namespace, rules in sorted(self.rules.items())}
        return kept

    @classmethod
    def from_json(cls, kept: Json) -> LinkEntry:
        """Read it back."""
        trouble, tasks = kept.get("trouble"), kept.get("tasks", {})
        return cls(
            kept["id"],
            kept["source_cluster"],
            kept["declared"],
            kept.get("status", ACTIVE),
            None if trouble is None else TroubleEntry.from_json(trouble),
            {name: TroubleEntry.from_json(task) for name, task in tasks.items()},
            kept.get("source_cluster_id"),
            {namespace: _rules(rules) for namespace, rules in kept.get("rules", {}).items()},
        )


def _kept(offsets: Mapping[int, int] | None) -> dict[str, int] | None:
    return None if offsets is None else {str(partition): offset for partition, offset in sorted(offsets.items())}


def _offsets(kept: Mapping[str, int] | None) -> dict[int, int] | None:
    return None if kept is None else {int(partition): offset for partition, offset in kept.items()}


def _listed(rules: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {path: list(operations) for path, operations in sorted(rules.items())}


def _rules(kept: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {path: tuple(operations) for path, operations in kept.items()}
