"""Entries, states and transitions of mirrors and links, and the data that a link syncs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, Literal, TypeAlias

from reconciler.errors import BlockedError, SourceChangedError, StalePlanError, UserError
from reconciler.lifecycles import MIRROR, REVERSAL_SUSPENDED, LinkStatus, MirrorStatus
from reconciler.resources.acls import NamespaceAcl, parse_rule, to_rule_fields
from reconciler.resources.address import join_name, split_name
from reconciler.resources.mirror_link import (
    ALWAYS_SYNCED,
    SYNCED_BY_DEFAULT,
    AclFilter,
    AutoCreateSpec,
    MirrorLink,
    NameFilter,
    is_auto_created,
    is_never_mirrored,
    is_never_synced,
)
from reconciler.runtime.dataclass import dataclass, field, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """Source topic.

    `configs` are set or inherited, without the cluster's defaults. `incarnation` is its topic id, if known.
    """

    partitions: int
    incarnation: str | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


CONSUMER_OFFSET_SYNC: Final = "ConsumerOffsetSync"
AUTO_CREATE_MIRROR: Final = "AutoCreateMirror"
ACL_SYNC: Final = "AclSync"
TOPIC_CONFIGS_SYNC: Final = "TopicConfigsSync"
TASKS: Final = (AUTO_CREATE_MIRROR, TOPIC_CONFIGS_SYNC, CONSUMER_OFFSET_SYNC, ACL_SYNC)
"""Tasks of a link besides copying, in the order in which they run."""

SOURCE_TOPIC_ID_CHANGED: Final = "SOURCE_TOPIC_ID_CHANGED"
"""The source was recreated."""
UNEXPECTED_TRUNCATION: Final = "UNEXPECTED_TRUNCATION"
"""The source was truncated below the copied offset."""
MIRROR_TRUNCATED: Final = "MIRROR_TRUNCATED"
"""The destination lost copied records."""
RECORDS_REFUSED: Final = "RECORDS_REFUSED"
"""The destination rejects copied records. Mirroring resumes when the cause is removed."""
SOURCE_TOPIC_MAY_BE_DELETED: Final = "SOURCE_TOPIC_MAY_BE_DELETED"
"""The source does not exist. The mirror fails after the link's timeout unless the source returns."""

NEVER_FETCHED: Final = -1
"""Fetch offset of a partition before its first copied record."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """Problem of a mirror or link, with a code such as `SOURCE_TOPIC_ID_CHANGED`."""

    code: str
    message: str
    since_ms: int = 0

    def to_json(self) -> Json:
        """Return the stored JSON."""
        return {"code": self.code, "message": self.message, "since_ms": self.since_ms}

    @classmethod
    def from_json(cls, stored: Json) -> Trouble:
        """Parse the stored JSON."""
        return cls(stored["code"], stored["message"], stored["since_ms"])


def stamp_trouble(trouble: Trouble | None, now_ms: int) -> Trouble | None:
    """Return a trouble whose missing start time becomes `now_ms`."""
    return None if trouble is None else replace(trouble, since_ms=trouble.since_ms or now_ms)


@dataclass(frozen=True, slots=True)
class ObservedMirror:
    """Mirror as its cluster reports it."""

    cluster: str
    name: str
    """Full name, including the link's prefix."""
    topic_id: str
    link: str
    """Name of the link, or its former id if it was deleted."""
    source_cluster: str
    """Empty if the link was deleted, because only the link stores it."""
    source: str
    status: MirrorStatus
    partitions: int
    since_ms: int = 0
    """Time in ms of entry into the state; 0 if unknown."""
    source_topic_id: str | None = None
    operation: Operation | None = None
    trouble: Trouble | None = None
    """Why the mirror cannot fetch, why it failed, or what its transition waits for."""
    stopped_by: str | None = None
    """Verb that stopped the mirror, such as `promote` or `failover`."""
    is_automatic: bool = False
    """Whether the link created the mirror by auto-create."""
    first_copy_done: bool = False
    begins: Mapping[int, int] | None = None
    """First offset by partition, if offsets differ from the source's."""
    is_untouched: bool = False
    """Whether a restore was cancelled before it changed a record."""


@dataclass(frozen=True, slots=True)
class ObservedLink:
    """Link as its destination reports it. `declared` omits the mirrors."""

    declared: MirrorLink
    id: str
    status: LinkStatus
    trouble: Trouble | None = None
    tasks: Mapping[str, Trouble] = field(default_factory=dict)
    source_cluster_id: str | None = None
    """Id of the source cluster at the first connection; the link rejects other clusters. Null before it."""

    @property
    def name(self) -> str:
        """Name of the link."""
        return self.declared.metadata.name


@dataclass(frozen=True, slots=True)
class Position:
    """Position of a partition of a current or former mirror.

    Records below `fetched` were copied from topic `source_topic_id` in leader epochs `source_epochs`.
    """

    start: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    source_topic_id: str | None = None
    source_epochs: tuple[tuple[int, int], ...] = ()
    fetched: int = NEVER_FETCHED
    is_renumbered: bool = False
    """Whether offsets differ from those of the source."""
    source_end: int | None = None
    """End of the source when the platform last saw it; `None` if it does not report one."""


Positions: TypeAlias = Mapping[int, Position]
"""Positions by partition, without partitions that were never written."""


@dataclass(frozen=True, slots=True)
class OffsetStretch:
    """Offsets `start` to `stop` - 1 of one partition. Not every offset has a record."""

    partition: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """Number of offsets."""
        return self.stop - self.start


def count_offsets(stretches: Iterable[OffsetStretch]) -> int:
    """Return the total number of offsets in ranges."""
    return sum(stretch.length for stretch in stretches)


@dataclass(frozen=True, slots=True)
class TruncatedPartition:
    """Result of the truncation of one partition in a restore."""

    offset: int
    """New end of the partition."""
    records: int


@dataclass(frozen=True, slots=True)
class DivergedPartition:
    """Records of an original source that its mirror never received."""

    partition: int
    start: int
    stop: int
    records: int
    since_ms: int | None = None
    """Earliest timestamp of these records in ms; `None` if unknown."""


SIDE: Final = ".diverged"


def build_side_topic_name(full_name: str) -> str:
    """Return the full name of the topic for records that a mirror never received."""
    return full_name + SIDE


WithDiverged: TypeAlias = Literal["refuse", "drop", "keep"]
"""What a restore does with records that the mirror never received: fail, drop, or copy to another topic."""


@dataclass(frozen=True, slots=True)
class ForeignRecords:
    """Records in a mirror that other producers wrote."""

    partition: int
    start: int
    """Offset of the first record in the mirror."""
    end: int
    """Offset after the last record."""
    records: int

    def __str__(self) -> str:
        last = self.end - 1
        where = f"offset {self.start:,}" if last == self.start else f"offsets {self.start:,} to {last:,}"
        return f"partition {self.partition}, {where}: {self.records:,} {'record' if self.records == 1 else 'records'}"


def find_agreed_end(earlier: Sequence[tuple[int, int]], now: Sequence[tuple[int, int]], upto: int) -> int:
    """Return the first offset, at most `upto`, at which two lists of (leader epoch, first offset) differ."""
    borders = sorted({start for _, start in (*earlier, *now) if start < upto})
    return next((start for start in borders if _find_epoch(earlier, start) != _find_epoch(now, start)), upto)


def _find_epoch(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), None)


Json: TypeAlias = dict[str, Any]

ACTIVE: Final = "ACTIVE"
STOPPED: Final = "STOPPED"


@dataclass(frozen=True, slots=True)
class Operation:
    """Requested promotion, reversal or restore.

    A promotion or reversal must reach the offsets `ends`; a restore truncates to them. `None` means not yet known.
    """

    id: str
    verb: str
    ends: Mapping[int, int] | None = None
    diverged: WithDiverged | None = None
    """What a restore does with records that the mirror never received; `None` truncates them."""
    approved: tuple[OffsetStretch, ...] | None = None
    """Ranges that a restore may truncate; `None` means no limit."""

    def to_json(self) -> Json:
        """Return the stored JSON."""
        document: Json = {"id": self.id, "verb": self.verb, "ends": _offsets_json(self.ends)}
        if self.diverged is not None:
            document["diverged"] = self.diverged
        if self.approved is not None:
            document["approved"] = [asdict(stretch) for stretch in self.approved]
        return document

    @classmethod
    def from_json(cls, stored: Json) -> Operation:
        """Parse the stored JSON."""
        approved = stored.get("approved")
        return cls(
            stored["id"],
            stored["verb"],
            _read_offsets(stored["ends"]),
            stored.get("diverged"),
            None if approved is None else tuple(OffsetStretch(**stretch) for stretch in approved),
        )


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """Stored entry of a mirror.

    `compute_mirror_status` combines `state` with the link's state. `rules` are the access rules that the link copied,
    by path. `ended` are ids of finished operations, which must not be repeated.
    """

    link_id: str
    source: str
    source_topic_id: str | None = None
    state: str = ACTIVE
    first_copy_done: bool = False
    since_ms: int = 0
    operation: Operation | None = None
    trouble: Trouble | None = None
    stopped_by: str | None = None
    is_automatic: bool = False
    begins: Mapping[int, int] | None = None
    rules: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ended: tuple[str, ...] = ()
    is_untouched: bool = False

    @property
    def is_stopped(self) -> bool:
        """Return whether mirroring has ended, so the topic is an ordinary topic."""
        return self.state == STOPPED

    def to_json(self) -> Json:
        """Return the stored JSON."""
        document: Json = {
            "link_id": self.link_id,
            "source": self.source,
            "source_topic_id": self.source_topic_id,
            "state": self.state,
            "first_copy_done": self.first_copy_done,
            "since_ms": self.since_ms,
        }
        if self.operation is not None:
            document["operation"] = self.operation.to_json()
        if self.trouble is not None:
            document["trouble"] = self.trouble.to_json()
        if self.stopped_by is not None:
            document["stopped_by"] = self.stopped_by
        if self.is_automatic:
            document["is_automatic"] = True
        if self.begins is not None:
            document["begins"] = _offsets_json(self.begins)
        if self.rules:
            document["rules"] = _rules_json(self.rules)
        if self.ended:
            document["ended"] = list(self.ended)
        if self.is_untouched:
            document["is_untouched"] = True
        return document

    @classmethod
    def from_json(cls, stored: Json) -> MirrorEntry:
        """Parse the stored JSON."""
        operation, trouble = stored.get("operation"), stored.get("trouble")
        return cls(
            link_id=stored["link_id"],
            source=stored["source"],
            source_topic_id=stored["source_topic_id"],
            state=stored["state"],
            first_copy_done=stored["first_copy_done"],
            since_ms=stored.get("since_ms", 0),
            operation=None if operation is None else Operation.from_json(operation),
            trouble=None if trouble is None else Trouble.from_json(trouble),
            stopped_by=stored.get("stopped_by"),
            is_automatic=stored.get("is_automatic", False),
            begins=_read_offsets(stored.get("begins")),
            rules=_read_rules(stored.get("rules", {})),
            ended=tuple(stored.get("ended", ())),
            is_untouched=stored.get("is_untouched", False),
        )


@dataclass(frozen=True, slots=True)
class LinkEntry:
    """Stored entry of a link on its destination.

    `declared` are its other fields as declared. `trouble` is the reason for the status UNAVAILABLE or FAILED. `rules`
    are access rules copied to namespaces, by path.
    """

    id: str
    source_cluster: str
    declared: Json = field(default_factory=dict)
    status: str = ACTIVE
    trouble: Trouble | None = None
    tasks: Mapping[str, Trouble] = field(default_factory=dict)
    source_cluster_id: str | None = None
    rules: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict)

    def to_json(self) -> Json:
        """Return the stored JSON."""
        document: Json = {"id": self.id, "source_cluster": self.source_cluster, "declared": self.declared}
        if self.status != ACTIVE:
            document["status"] = self.status
        if self.trouble is not None:
            document["trouble"] = self.trouble.to_json()
        if self.tasks:
            document["tasks"] = {name: trouble.to_json() for name, trouble in self.tasks.items()}
        if self.source_cluster_id is not None:
            document["source_cluster_id"] = self.source_cluster_id
        if self.rules:
            document["rules"] = {namespace: _rules_json(rules) for namespace, rules in sorted(self.rules.items())}
        return document

    @classmethod
    def from_json(cls, stored: Json) -> LinkEntry:
        """Parse the stored JSON."""
        trouble, tasks = stored.get("trouble"), stored.get("tasks", {})
        return cls(
            stored["id"],
            stored["source_cluster"],
            stored["declared"],
            stored.get("status", ACTIVE),
            None if trouble is None else Trouble.from_json(trouble),
            {name: Trouble.from_json(task) for name, task in tasks.items()},
            stored.get("source_cluster_id"),
            {namespace: _read_rules(rules) for namespace, rules in stored.get("rules", {}).items()},
        )


def _offsets_json(offsets: Mapping[int, int] | None) -> dict[str, int] | None:
    return None if offsets is None else {str(partition): offset for partition, offset in sorted(offsets.items())}


def _read_offsets(stored: Mapping[str, int] | None) -> dict[int, int] | None:
    return None if stored is None else {int(partition): offset for partition, offset in stored.items()}


def _rules_json(rules: Mapping[str, tuple[str, ...]]) -> dict[str, list[str]]:
    return {path: list(operations) for path, operations in sorted(rules.items())}


def _read_rules(stored: Mapping[str, list[str]]) -> dict[str, tuple[str, ...]]:
    return {path: tuple(operations) for path, operations in stored.items()}


# States that a link causes (paused, unreachable, broken) are stored only in the link. `named_link` is the link with its
# name; `None` if deleted.


PROMOTE: Final = "promote"
FAILOVER: Final = "failover"
PAUSE: Final = "pause"
RESUME: Final = "resume"
RESTORE: Final = "truncate-and-restore"
UNTOLD_VERB: Final = "unknown"
"""Verb that stopped a mirror, of a platform that does not report it."""
REVERSE_AND_START: Final = "reverse-and-start"
REVERSE_AND_PAUSE: Final = "reverse-and-pause"
ONE_SIDED: Final = frozenset({PAUSE, RESUME, FAILOVER})
REVERSALS: Final = frozenset({REVERSE_AND_START, REVERSE_AND_PAUSE})

NamedObjects: TypeAlias = "tuple[str, LinkEntry]"
_M = MirrorStatus


def compute_link_status(link: LinkEntry) -> LinkStatus:
    """Return the displayed status of a link."""
    if link.status == LinkStatus.FAILED:
        return LinkStatus.FAILED
    return LinkStatus.PAUSED if link.declared.get("paused") else LinkStatus(link.status)


def compute_mirror_status(mirror: MirrorEntry, link: LinkEntry | None) -> MirrorStatus:
    """Return the displayed status of a mirror, which its link may determine. `link` is `None` if deleted."""
    own_status = MirrorStatus(mirror.state)
    if own_status not in {_M.ACTIVE, _M.PAUSED}:
        return own_status
    shown = LinkStatus.FAILED if link is None else compute_link_status(link)
    if shown is LinkStatus.FAILED:
        return _M.LINK_FAILED
    if shown is LinkStatus.PAUSED:
        return _M.LINK_PAUSED
    if own_status is _M.PAUSED:
        return own_status
    is_away = mirror.trouble is not None and mirror.trouble.code != RECORDS_REFUSED
    return _M.SOURCE_UNAVAILABLE if shown is LinkStatus.UNAVAILABLE or is_away else own_status


def find_status_start(mirror: MirrorEntry, link: LinkEntry | None) -> int:
    """Return the time in ms when a mirror entered its displayed status; 0 if unknown."""
    shown = compute_mirror_status(mirror, link)
    if shown not in {_M.LINK_PAUSED, _M.LINK_FAILED, _M.SOURCE_UNAVAILABLE}:
        return mirror.since_ms
    imposed = None if shown is _M.LINK_PAUSED or link is None else link.trouble
    trouble = mirror.trouble if shown is _M.SOURCE_UNAVAILABLE and imposed is None else imposed
    return 0 if trouble is None else trouble.since_ms


@dataclass(frozen=True, slots=True)
class TransitionRequest:
    """Time of a request, and the operation's id for a verb with several steps."""

    now_ms: int
    operation: str = ""
    is_given_up: bool = False
    """Whether the source of a reversal accepts records again."""


def apply_verb_request(
    full_name: str, mirror: MirrorEntry, named_link: NamedObjects | None, verb: str, request: TransitionRequest
) -> MirrorEntry:
    """Return a mirror's entry after a request for a lifecycle verb.

    Raises:
        UserError: The mirror's state does not allow the verb.
    """
    status = compute_mirror_status(mirror, None if named_link is None else named_link[1])
    is_suspended = mirror.operation is not None and status is _M.PAUSED
    if is_suspended and verb == PROMOTE:
        message = f"mirror {full_name}: cannot promote while a reversal is suspended"
        raise UserError(message, hint="Possible in this state: resume, failover.")
    condition = REVERSAL_SUSPENDED if is_suspended and verb == RESUME else ""
    end = find_next_status(full_name, status, verb, condition)
    if verb in REVERSALS:
        check_reversible(full_name, mirror.source, named_link)
    return _begin_verb(mirror, verb, end, request)


def find_next_status(full_name: str, status: MirrorStatus, verb: str, condition: str = "") -> MirrorStatus:
    """Return the mirror status to which a lifecycle verb leads.

    Raises:
        UserError: The status does not allow the verb.
    """
    return MIRROR.apply_verb(status, verb, condition=condition, subject=f"mirror {full_name} is {status}")


def _begin_verb(mirror: MirrorEntry, verb: str, end: MirrorStatus, request: TransitionRequest) -> MirrorEntry:
    after = replace(mirror, state=end.value, since_ms=request.now_ms)
    if verb in {PAUSE, RESUME}:
        return after
    if verb == FAILOVER:
        is_untouched = mirror.state == _M.PENDING_SETUP_FOR_RESTORE
        return replace(_end_operation(after), trouble=None, stopped_by=FAILOVER, is_untouched=is_untouched)
    return replace(after, operation=Operation(request.operation, verb), trouble=None)


def _end_operation(mirror: MirrorEntry) -> MirrorEntry:
    if mirror.operation is None:
        return mirror
    return replace(mirror, operation=None, ended=(*mirror.ended, mirror.operation.id)[-_MAX_ENDED:])


_MAX_ENDED: Final = 8


def check_reversible(full_name: str, other: str, named_link: NamedObjects | None) -> None:
    """Reject a reversal or restore over a one-way link, or one with a prefix.

    `other` is the full name on the other cluster.
    """
    declared = {} if named_link is None else named_link[1].declared
    if declared.get("mode") != "bidirectional":
        message = f"mirror {full_name} cannot be reversed: its link is not bidirectional"
        raise UserError(message, hint="Promote or fail over, and link the other way.")
    if declared.get("prefix") or other != full_name:
        message = f"mirror {full_name} cannot be reversed: its link has a prefix"
        raise UserError(message, hint="Promote or fail over, and link the other way.")


@dataclass(frozen=True, slots=True)
class Peer:
    """Mirror on the other cluster that a topic will follow."""

    link: str
    name: str
    topic_id: str


def join_peer(
    full_name: str,
    mirror: MirrorEntry | None,
    status: MirrorStatus,
    of: tuple[Peer, LinkEntry],
    begun: tuple[Operation, int],
) -> MirrorEntry:
    """Return the entry of an ordinary topic that becomes the mirror of its own mirror, as in a reversal.

    Idempotent. `mirror` and `status` are the topic's former ones. `of` is the mirror to follow, and the link. `begun`
    is the operation and its start in ms.

    Raises:
        UserError: The topic is a mirror, its link is one-way or has a prefix, or the operation has ended.
    """
    peer, link = of
    operation, now_ms = begun
    if mirror is not None and mirror.operation is not None and mirror.operation.id == operation.id:
        return mirror
    if mirror is not None and operation.id in mirror.ended:
        raise operation_over_error(full_name, mirror)
    check_reversible(full_name, peer.name, (peer.link, link))
    if operation.verb == RESTORE:
        end = find_next_status(full_name, status, operation.verb)
    elif status in {_M.REGULAR, _M.STOPPED}:
        end = MIRROR.follow_automatic_move(status, _M.PENDING_MIRROR)
    else:
        raise UserError(f"topic {full_name} is a mirror already ({status})", hint="Stop that mirror first.")
    return MirrorEntry(
        link.id,
        peer.name,
        peer.topic_id,
        state=end.value,
        first_copy_done=True,
        since_ms=now_ms,
        operation=operation,
        ended=() if mirror is None else mirror.ended,
    )


def set_end_offsets(full_name: str, mirror: MirrorEntry, operation: str, ends: Mapping[int, int]) -> MirrorEntry:
    """Set the end offsets of the mirror's operation, unless they are already set.

    Raises:
        UserError: The operation has ended.
    """
    current = require_operation(full_name, mirror, operation)
    return mirror if current.ends is not None else replace(mirror, operation=replace(current, ends=dict(ends)))


def advance_mirror(full_name: str, mirror: MirrorEntry, to: MirrorStatus, request: TransitionRequest) -> MirrorEntry:
    """Return a mirror's entry in state `to` of its operation. Idempotent.

    Raises:
        UserError: The operation has ended, or the table has no such transition.
    """
    if mirror.operation is None and mirror.state == to and to in _OPERATION_ENDS:
        return mirror
    current = require_operation(full_name, mirror, request.operation)
    if mirror.state == to:
        return mirror
    end = MIRROR.follow_automatic_move(MirrorStatus(mirror.state), to)
    rejects_writes = current.ends is not None and not request.is_given_up
    if mirror.state == _M.PENDING_SYNCHRONIZE and end is _M.ACTIVE and rejects_writes:
        message = f"mirror {full_name} is {mirror.state}, and its source is sealed: its reversal cannot be undone"
        raise UserError(message, hint="Continue with: reconciler run --once --only mirror")
    after = replace(mirror, state=end.value, since_ms=request.now_ms, trouble=None)
    if end is _M.STOPPED:
        after = replace(after, stopped_by=current.verb)
    return _end_operation(after) if end in _OPERATION_ENDS else after


_OPERATION_ENDS: Final = frozenset({_M.STOPPED, _M.ACTIVE, _M.PAUSED})


def require_operation(full_name: str, mirror: MirrorEntry, operation: str) -> Operation:
    """Return the mirror's operation with this id.

    Raises:
        UserError: The operation has ended.
    """
    if mirror.operation is None or mirror.operation.id != operation:
        raise operation_over_error(full_name, mirror)
    return mirror.operation


def operation_over_error(full_name: str, mirror: MirrorEntry) -> UserError:
    """Return the error for a process whose operation has ended."""
    message = f"mirror {full_name} is {mirror.state}, and that operation is over"
    return UserError(message, hint="It was failed over or finished in the meantime: look again.")


def set_mirror_trouble(
    mirror: MirrorEntry, trouble: Trouble | None, *, fails: bool = False, operation: str | None = None
) -> MirrorEntry:
    """Return a mirror's entry with this trouble, and with state FAILED if `fails`.

    A stopped mirror does not change, nor does one whose `operation` has ended.
    """
    if mirror.is_stopped or mirror.state == _M.FAILED:
        return mirror
    if operation is not None and (mirror.operation is None or mirror.operation.id != operation):
        return mirror
    if fails and trouble is not None and MirrorStatus(mirror.state) in {_M.ACTIVE, _M.PAUSED}:
        return replace(mirror, state=_M.FAILED.value, since_ms=trouble.since_ms, trouble=trouble)
    return replace(mirror, trouble=_keep_first_time(mirror.trouble, trouble))


def set_link_trouble(link: LinkEntry, status: LinkStatus, trouble: Trouble | None) -> LinkEntry:
    """Return a link's entry with a status and its reason."""
    return replace(link, status=status.value, trouble=_keep_first_time(link.trouble, trouble))


def set_task_trouble(link: LinkEntry, task: str, trouble: Trouble | None) -> LinkEntry:
    """Return the entry with a task's trouble; `None` removes it."""
    others = {key: other_trouble for key, other_trouble in link.tasks.items() if key != task}
    known = _keep_first_time(link.tasks.get(task), trouble)
    return replace(link, tasks=others if known is None else {**others, task: known})


def _keep_first_time(before: Trouble | None, now: Trouble | None) -> Trouble | None:
    if before is None or now is None or before.code != now.code:
        return now
    return replace(now, since_ms=before.since_ms)


def set_first_offsets(mirror: MirrorEntry, offsets: Mapping[int, int]) -> MirrorEntry:
    """Return a mirror's entry with first offsets by partition, unless already stored."""
    return replace(mirror, begins={**offsets, **(mirror.begins or {})})


def is_verb_done(mirror: MirrorEntry, verb: str) -> bool:
    """Return whether a verb was already executed, for a caller that lost the response."""
    match verb:
        case "failover":
            return mirror.state == _M.STOPPED
        case "pause":
            return mirror.state == _M.PAUSED
        case _:
            return mirror.state in {_M.ACTIVE, _M.PENDING_SYNCHRONIZE}


_FINAL_STATES: Final = frozenset({MirrorStatus.FAILED, MirrorStatus.STOPPED})


def list_synced_configs(link: LinkEntry) -> tuple[str, ...]:
    """Return the configs that a link syncs, sorted."""
    listed = (link.declared.get("topicConfigSync") or {}).get("include", SYNCED_BY_DEFAULT)
    return tuple(sorted(key for key in listed if not is_never_synced(key)))


def create_link_entry(name: str, existing: LinkEntry | None, new: LinkEntry) -> LinkEntry:
    """Return the entry of a new link, or the existing one if it is equal.

    Raises:
        UserError: The link exists and differs, or its declaration is incomplete.
    """
    check_synced_configs(name, new)
    new = replace(new, declared=clean_filters(name, new.declared))
    if existing is None:
        return new
    if (existing.source_cluster, existing.declared) != (new.source_cluster, new.declared):
        raise UserError(f"link {name} exists and differs", hint="Change it instead of creating it.")
    return existing


def alter_link_entry(name: str, link: LinkEntry, declared: Json) -> LinkEntry:
    """Return a link's entry with another declaration, but the same id, source and state.

    Raises:
        UserError: The declaration is incomplete.
    """
    after = replace(link, declared=clean_filters(name, declared))
    check_synced_configs(name, after)
    return after


def check_same_link(name: str, link: LinkEntry | None, link_id: str | None) -> None:
    """Raise `StalePlanError` if a link does not have the planned id. `None` allows any link."""
    if link is not None and link_id not in {None, link.id}:
        raise StalePlanError(f"link {name} was deleted and created again after it was read", hint="Plan again.")


def check_same_source(full_name: str, mirror: MirrorEntry, source: SourceTopic) -> None:
    """Raise `SourceChangedError` if the mirror's source was recreated."""
    if source.incarnation is None or mirror.source_topic_id in {None, source.incarnation}:
        return
    message = f"the source {mirror.source} of mirror {full_name} was deleted and created again (its topic id changed)"
    hint = "Delete the mirror and create it again to copy the new topic."
    raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)


def check_synced_configs(name: str, link: LinkEntry) -> None:
    """Reject a link that does not sync every config in `ALWAYS_SYNCED`."""
    missing = sorted(set(ALWAYS_SYNCED) - set(list_synced_configs(link)))
    if missing:
        message = f"link {name}: topicConfigSync.include lacks {', '.join(missing)}"
        raise UserError(message, hint="The list is complete: add these; they are always synced.")


def check_own_configs(full_name: str, synced: Iterable[str], keys: Iterable[str]) -> None:
    """Reject a mirror's own configs if they are synced from its source."""
    following = sorted(set(keys) & {*synced, "partitions"})
    if following:
        message = f"mirror {full_name} follows its source in {', '.join(following)}"
        raise UserError(message, hint="Change it on the source.")


def build_mirror_name(source: str, link: LinkEntry) -> str:
    """Return the full name of a source's mirror: namespace, the link's prefix, and topic name."""
    namespace, own = split_name(source)
    return join_name(namespace, f"{link.declared.get('prefix', '')}{own}")


def check_mirror_name(full_name: str, source: str, named_link: NamedObjects) -> None:
    """Reject a source never mirrored, or a mirror whose name does not follow from its source."""
    if is_never_mirrored(source):
        message = f"mirror {full_name}: {source} is a topic of the platform's own, and never mirrored"
        raise UserError(message, hint="Leave it out: each cluster has its own.")
    wanted = build_mirror_name(source, named_link[1])
    if full_name != wanted:
        message = f"a mirror of {source} over link {named_link[0]} is called {wanted}, and not {full_name}"
        raise UserError(message, hint="Give the link a prefix where the name is taken.")


def check_deletable(full_name: str, mirror: MirrorEntry, named_link: NamedObjects | None) -> None:
    """Reject the deletion of a mirror in its current state.

    Raises:
        UserError: The mirror is being promoted, reversed or restored.
        BlockedError: Auto-create would create the mirror again.
    """
    status = compute_mirror_status(mirror, None if named_link is None else named_link[1])
    if "delete" not in MIRROR.list_legal_verbs(status):
        message = f"mirror {full_name} is {status}: cannot delete while {status}"
        raise UserError(message, hint=f"Possible in this state: {', '.join(MIRROR.list_legal_verbs(status))}.")
    if status in _FINAL_STATES or named_link is None or not _auto_creates(named_link[1], mirror.source):
        return
    message = (
        f"mirror {full_name} cannot be deleted: the autoCreate filters of link {named_link[0]} take {mirror.source}"
    )
    raise BlockedError(message, hint="Exclude it there or disable autoCreate first; or fail it over, then delete it.")


def check_unused(name: str, mirrors: Iterable[tuple[str, MirrorEntry]]) -> None:
    """Reject the deletion of a link with unstopped mirrors."""
    live = [f"{topic} ({mirror.state})" for topic, mirror in mirrors if not mirror.is_stopped]
    if live:
        message = f"link {name} has mirrors that are not stopped: {', '.join(live[:5])}{' …' if live[5:] else ''}"
        raise BlockedError(message, hint="Promote, fail over or delete them first.")


def _auto_creates(link: LinkEntry, source: str) -> bool:
    declared = link.declared.get("autoCreate")
    auto = AutoCreateSpec() if declared is None else AutoCreateSpec.model_validate(declared)
    return auto.enabled and is_auto_created(auto.filters, source)


AUTO_CREATE: Final = "autoCreate"
OFFSETS: Final = "consumerOffsetSync"


def read_auto_create_filters(link: LinkEntry) -> tuple[NameFilter, ...]:
    """Return the filters for auto-created mirrors; empty if auto-create is disabled."""
    declared = link.declared.get(AUTO_CREATE) or {}
    if not declared.get("enabled", False):
        return ()
    return tuple(NameFilter.model_validate(name_filter) for name_filter in declared.get("filters", ()))


def match_auto_created(link: LinkEntry, sources: Iterable[str]) -> dict[str, str]:
    """Return the sources that a link's filters would auto-create, by mirror name."""
    filters = read_auto_create_filters(link)
    return {build_mirror_name(source, link): source for source in sorted(sources) if is_auto_created(filters, source)}


def clean_filters(name: str, declared: Json) -> Json:
    """Return a link's declaration without the filters of disabled tasks (F-C-023)."""
    cleaned = dict(declared)
    for task in (AUTO_CREATE, OFFSETS):
        task_spec = cleaned.get(task)
        if task_spec is None:
            continue
        if not task_spec.get("enabled", False):
            cleaned[task] = {key: [] if key == "filters" else value for key, value in task_spec.items()}
        elif not task_spec.get("filters"):
            message = f"link {name}: {task} is enabled and has no filters"
            raise UserError(message, hint='To take everything, write `filters: [{name: "*"}]`.')
    return cleaned


@dataclass(frozen=True, slots=True)
class OfferedTopic:
    """Topic as seen by a link from another cluster."""

    topic: SourceTopic
    is_mirror: bool = False
    is_readable: bool = True


@dataclass(frozen=True, slots=True)
class GroupPosition:
    """Committed offset of a group on a partition, with the commit's metadata."""

    offset: int
    metadata: str = ""


GroupOffsets: TypeAlias = Mapping[tuple[str, int], GroupPosition]
"""Committed offsets of a group, by (full name of the topic, partition)."""


@dataclass(frozen=True, slots=True)
class GroupOffsetsResult:
    """Result of copying a group's offsets to the cluster of the mirrors."""

    is_changed: bool = False
    is_clamped: bool = False
    """Whether offsets were limited to the mirror's end, so they must be copied again."""
    reading: tuple[str, ...] = ()
    """Mirrors that the group reads on this cluster. If there are any, no offset was copied."""
    own: tuple[str, ...] = ()
    """Mirrors whose offsets the group itself committed on this cluster, so they were not changed."""


RuleFields: TypeAlias = Mapping[str, tuple[str, ...]]
"""Operations by path of access rule (`resources/acls.py`), for one topic or namespace."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Access rules by full name."""

    topics: Mapping[str, RuleFields] = field(default_factory=dict)
    namespaces: Mapping[str, RuleFields] = field(default_factory=dict)


# A filter copies only the matching operations of a rule.


_ANY: Final = frozenset({"any", "*"})
_KINDS: Final = {"topics": "topic", "groups": "group", "transactional-ids": "transactional-id"}
LITERAL: Final = "literal"
PREFIXED: Final = "prefixed"


def filter_rules(filters: Sequence[AclFilter], rules: AccessRules) -> AccessRules:
    """Return the access rules that a link's filters match."""
    topics = {name: _take_rules(filters, name, fields, is_topic=True) for name, fields in rules.topics.items()}
    namespaces = {name: _take_rules(filters, name, fields, is_topic=False) for name, fields in rules.namespaces.items()}
    return AccessRules(
        {name: fields for name, fields in topics.items() if fields},
        {name: fields for name, fields in namespaces.items() if fields},
    )


def _take_rules(filters: Iterable[AclFilter], where: str, fields: RuleFields, *, is_topic: bool) -> RuleFields:
    rules = [parse_rule(path, operations) for path, operations in fields.items()]
    narrowed = (_narrow_rule(acl_filter, rule, where, is_topic=is_topic) for acl_filter in filters for rule in rules)
    return to_rule_fields(rule for rule in narrowed if rule is not None)


def _narrow_rule(acl_filter: AclFilter, rule: NamespaceAcl, where: str, *, is_topic: bool) -> NamespaceAcl | None:
    who = (
        _matches_text(acl_filter.principal, rule.principal)
        and _matches_text(acl_filter.host, rule.host)
        and _matches_word(acl_filter.permission, rule.permission)
    )
    narrowed: Mapping[str, tuple[str, ...]] = {
        "operations": tuple(one for one in rule.operations if _matches_word(acl_filter.operation, one)),
        "resources": tuple(one for one in rule.resources if _matches_word(acl_filter.resource_type, _KINDS[one])),
        "names": tuple(
            name
            for name in rule.names
            if _matches_pattern(acl_filter, *_resolve_pattern(where, name, is_topic=is_topic))
        ),
    }
    return rule.model_copy(update=dict(narrowed)) if who and all(narrowed.values()) else None


def _resolve_pattern(where: str, name: str, *, is_topic: bool) -> tuple[str, str]:
    if is_topic:
        return LITERAL, where
    return (PREFIXED, f"{where}:{name[:-1]}") if name.endswith("*") else (LITERAL, f"{where}:{name}")


def _matches_pattern(acl_filter: AclFilter, kind: str, name: str) -> bool:
    pattern_type = acl_filter.pattern_type.lower()
    if pattern_type == "match":  # As in Kafka, `match` selects every rule that applies to that name.
        return acl_filter.resource_name == "*" or (
            acl_filter.resource_name.startswith(name) if kind == PREFIXED else acl_filter.resource_name == name
        )
    return _matches_text(acl_filter.resource_name, name) and (pattern_type in _ANY or pattern_type == kind)


def _matches_text(wanted: str, actual: str) -> bool:
    return wanted in {"*", actual}


def _matches_word(wanted: str, actual: str) -> bool:
    word = wanted.lower().replace("_", "-")
    return word in _ANY or word == actual


def plan_access_rule_changes(
    current: RuleFields, before: RuleFields, wanted: RuleFields
) -> tuple[Mapping[str, tuple[str, ...] | None], dict[str, tuple[str, ...]]]:
    """Return the changes to the current rules (`None` deletes one), and the rules that the link owns afterwards.

    `before` are the rules that the link owned. A link owns, and later deletes, only rules that it created.
    """
    changes: dict[str, tuple[str, ...] | None] = {}
    own: dict[str, tuple[str, ...]] = {}
    for path in sorted({*before, *wanted}):
        now, ours, wanted_operations = (frozenset(fields.get(path, ())) for fields in (current, before, wanted))
        after = (now - (ours - wanted_operations)) | wanted_operations
        if after != now:
            changes[path] = tuple(sorted(after)) or None
        link_operations = (ours & wanted_operations & now) | (wanted_operations - now)
        if link_operations:
            own[path] = tuple(sorted(link_operations))
    return changes, own
