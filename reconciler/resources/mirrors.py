"""Mirrors and links as clusters report them: entries, states, positions, and what a link syncs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from reconciler.errors import BlockedError, SourceChangedError, StalePlanError, UserError
from reconciler.lifecycles import MIRROR, REVERSAL_SUSPENDED, LinkStatus, MirrorStatus
from reconciler.resources.acls import NamespaceAcl, rule_at, rule_fields
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTopic:
    """A source topic: `configs` are those it sets or inherits; defaults are left out, each cluster has its own.

    `incarnation` tells it from a later topic of the same name; `None` where the platform cannot.
    """

    partitions: int
    incarnation: str | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


# Links and mirrors as their clusters see them: states, positions, and what is wrong.


CONSUMER_OFFSET_SYNC: Final = "ConsumerOffsetSync"
AUTO_CREATE_MIRROR: Final = "AutoCreateMirror"
ACL_SYNC: Final = "AclSync"
TOPIC_CONFIGS_SYNC: Final = "TopicConfigsSync"
TASKS: Final = (AUTO_CREATE_MIRROR, TOPIC_CONFIGS_SYNC, CONSUMER_OFFSET_SYNC, ACL_SYNC)
"""What a link does beside copying, in the order in which it does it."""

SOURCE_TOPIC_ID_CHANGED: Final = "SOURCE_TOPIC_ID_CHANGED"
"""Of a mirror whose source was deleted and created again."""
UNEXPECTED_TRUNCATION: Final = "UNEXPECTED_TRUNCATION"
"""Of a mirror whose source was cut below what was copied."""
MIRROR_TRUNCATED: Final = "MIRROR_TRUNCATED"
"""Of a mirror whose own cluster lost records that were copied to it."""
RECORDS_REFUSED: Final = "RECORDS_REFUSED"
"""Of a mirror whose copy its own cluster refuses: its source is there, so it goes on as soon as somebody mends that."""
SOURCE_TOPIC_MAY_BE_DELETED: Final = "SOURCE_TOPIC_MAY_BE_DELETED"
"""Of a mirror whose source is not there; it may come back until the link's time-out."""

NEVER_FETCHED: Final = -1
"""Last source fetch offset of a partition of which nothing was ever copied."""


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong: a code of the field (`SOURCE_TOPIC_ID_CHANGED`, `CONSUMER_GROUP_IN_USE_ERROR`), and in words."""

    code: str
    message: str
    since_ms: int = 0

    def to_json(self) -> Json:
        """Return what is kept."""
        return {"code": self.code, "message": self.message, "since_ms": self.since_ms}

    @classmethod
    def from_json(cls, stored: Json) -> Trouble:
        """Read it back."""
        return cls(stored["code"], stored["message"], stored["since_ms"])


def noted(trouble: Trouble | None, now_ms: int) -> Trouble | None:
    """Return a trouble as it is kept: since when it is so, or since now."""
    return None if trouble is None else replace(trouble, since_ms=trouble.since_ms or now_ms)


@dataclass(frozen=True, slots=True)
class MirrorSeen:
    """A mirror as its cluster has it."""

    cluster: str
    """The destination, on which it lives."""
    name: str
    """Full name, prefix included."""
    topic_id: str
    link: str
    """Its name; the id it had where it is gone."""
    source_cluster: str
    """Empty where the link is gone: only that knew."""
    source: str
    status: MirrorStatus
    partitions: int
    since_ms: int = 0
    """When it came into that state. 0: not known, such as when its link was paused."""
    source_topic_id: str | None = None
    operation: Operation | None = None
    trouble: Trouble | None = None
    """Why it cannot fetch, why it failed, or what its transition waits for."""
    stopped_by: str | None = None
    """The verb that stopped it: `promote`, `failover`, `reverse-and-start` or `reverse-and-pause`."""
    is_automatic: bool = False
    """Whether the link made it by itself."""
    first_copy_done: bool = False
    begins: Mapping[int, int] | None = None
    """Where its partitions began, where that was not the beginning of its source's."""
    is_untouched: bool = False
    """A restore of it was given up before it had changed a record."""


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """A link as its destination has it; `declared` is without its mirrors."""

    declared: MirrorLink
    id: str
    status: LinkStatus
    trouble: Trouble | None = None
    tasks: Mapping[str, Trouble] = field(default_factory=dict)
    """What is wrong with its tasks, by name."""
    source_cluster_id: str | None = None
    """Of the cluster it was made to, the only one that is followed. Null: it has not met it yet."""

    @property
    def name(self) -> str:
        """Its name."""
        return self.declared.metadata.name


@dataclass(frozen=True, slots=True)
class Position:
    """Where a partition of a mirror, or of what was one, stands.

    `source_topic_id`, `source_epochs` and `fetched` say what was copied last: all below `fetched` is the source's log
    as it was under those epochs. What was written here after mirroring ended lies from `fetched` on.
    """

    start: int
    end: int
    epochs: tuple[tuple[int, int], ...] = ()
    source_topic_id: str | None = None
    source_epochs: tuple[tuple[int, int], ...] = ()
    fetched: int = NEVER_FETCHED
    is_renumbered: bool = False
    """Whether its own offsets, from `start` to `end`, are others than those of its source."""


Positions: TypeAlias = Mapping[int, Position]
"""By partition; one that is absent was never written to."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets of one partition, `start` to before `stop`; there may be fewer records."""

    partition: int
    start: int
    stop: int

    @property
    def length(self) -> int:
        """How many offsets it spans."""
        return self.stop - self.start


def length_of(stretches: Iterable[Stretch]) -> int:
    """Return how many offsets stretches span together."""
    return sum(stretch.length for stretch in stretches)


@dataclass(frozen=True, slots=True)
class Truncated:
    """What a restore cut off one partition."""

    offset: int
    """Where it ends now."""
    records: int


@dataclass(frozen=True, slots=True)
class Diverged:
    """What one partition of an original source has that its mirror never got: records, not offsets."""

    partition: int
    start: int
    stop: int
    records: int
    since_ms: int | None = None
    """The earliest time of one of them; `None`: we cannot tell."""


SIDE: Final = ".diverged"


def side_topic(full_name: str) -> str:
    """Return the full name of the topic that keeps what the mirror of a topic never got."""
    return full_name + SIDE


WithDiverged: TypeAlias = Literal["refuse", "drop", "keep"]
"""What a restore does with records that the mirror never got: end with an error, give them up, or keep them in a topic
of their own.
"""


@dataclass(frozen=True, slots=True)
class ForeignRecords:
    """Records in a mirror that are not its source's: other producers wrote them."""

    partition: int
    start: int
    """The mirror's offset of the first one."""
    end: int
    """The offset after the last one."""
    records: int

    def __str__(self) -> str:
        """Return it as a person reads it: `partition 0, offsets 5 to 7: 2 records`."""
        last = self.end - 1
        where = f"offset {self.start:,}" if last == self.start else f"offsets {self.start:,} to {last:,}"
        return f"partition {self.partition}, {where}: {self.records:,} {'record' if self.records == 1 else 'records'}"


def agreed_to(earlier: Sequence[tuple[int, int]], now: Sequence[tuple[int, int]], upto: int) -> int:
    """Return the first offset, at most `upto`, that two lists of (epoch, first offset) give to different epochs."""
    borders = sorted({start for _, start in (*earlier, *now) if start < upto})
    return next((start for start in borders if _epoch_at(earlier, start) != _epoch_at(now, start)), upto)


def _epoch_at(epochs: Sequence[tuple[int, int]], offset: int) -> int | None:
    return next((epoch for epoch, start in reversed(epochs) if start <= offset), None)


# What a destination keeps of a link and of each of its mirrors: states, and what is under way or wrong.


Json: TypeAlias = dict[str, Any]

ACTIVE: Final = "ACTIVE"
STOPPED: Final = "STOPPED"


@dataclass(frozen=True, slots=True)
class Operation:
    """A promotion, reversal or restore that was asked for; `id` is the same on both clusters.

    `ends` are the offsets a promotion or reversal must reach, or where a restore cuts; `None` until they are known.
    """

    id: str
    verb: str
    """The verb in progress, where that takes several steps."""
    ends: Mapping[int, int] | None = None
    diverged: WithDiverged | None = None
    """What a restore does with records that the mirror never got; `None`: it cuts them off, as its platform can."""
    approved: tuple[Stretch, ...] | None = None
    """What a restore may cut off at most; `None`: nobody was asked."""

    def to_json(self) -> Json:
        """Return what is kept."""
        document: Json = {"id": self.id, "verb": self.verb, "ends": _offsets_json(self.ends)}
        if self.diverged is not None:
            document["diverged"] = self.diverged
        if self.approved is not None:
            document["approved"] = [asdict(stretch) for stretch in self.approved]
        return document

    @classmethod
    def from_json(cls, stored: Json) -> Operation:
        """Read it back."""
        approved = stored.get("approved")
        return cls(
            stored["id"],
            stored["verb"],
            _read_offsets(stored["ends"]),
            stored.get("diverged"),
            None if approved is None else tuple(Stretch(**stretch) for stretch in approved),
        )


@dataclass(frozen=True, slots=True)
class MirrorEntry:
    """What makes a topic a mirror: its link, its source, known by id from the first look at it, and its state.

    `state` is the one it keeps; what its link imposes on it is not written into every mirror (`status_of`).
    `since_ms` is when it came into it. `stopped_by` is the verb that ended it. `begins` is where its partitions began,
    where that is not the beginning of its source's. `rules` are the access rules that its link brought, by path.
    `ended` are the operations that were over last, by id: whoever comes late does not begin one of them again.
    `is_untouched`: a restore of it was given up before it had changed a record.
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
        """Tell whether its mirroring is over, and it is an ordinary topic that has a record."""
        return self.state == STOPPED

    def to_json(self) -> Json:
        """Return what is kept."""
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
        """Read it back."""
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
    """A link on its destination: where records come from. `declared` is the rest of what was asked for, as given.

    `status` is ACTIVE, UNAVAILABLE or FAILED, with the `trouble` that made it so; that it is paused is declared.
    `tasks` are the troubles of what it does beside copying. `source_cluster_id`: the cluster it was made to.
    `rules` are the access rules it brought to namespaces, by path.
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
        """Return what is kept."""
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
        """Read it back."""
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


# A mirror going from state to state: what may be asked of one, and how a transition ends. Pure.
#
# What a link imposes on its mirrors (paused, unreachable, broken) is kept in the link alone and shown by `status_of`:
# where the link mends, each mirror is again what it was. `found` is a mirror's link with its name; `None`: it is gone.


PROMOTE: Final = "promote"
FAILOVER: Final = "failover"
PAUSE: Final = "pause"
RESUME: Final = "resume"
RESTORE: Final = "truncate-and-restore"
REVERSE_AND_START: Final = "reverse-and-start"
REVERSE_AND_PAUSE: Final = "reverse-and-pause"
ONE_SIDED: Final = frozenset({PAUSE, RESUME, FAILOVER})
"""Verbs that end in one step, which needs the destination alone."""
REVERSALS: Final = frozenset({REVERSE_AND_START, REVERSE_AND_PAUSE})

Named: TypeAlias = "tuple[str, LinkEntry]"
_M = MirrorStatus


def link_status(link: LinkEntry) -> LinkStatus:
    """Return what is shown of a link."""
    if link.status == LinkStatus.FAILED:
        return LinkStatus.FAILED
    return LinkStatus.PAUSED if link.declared.get("paused") else LinkStatus(link.status)


def status_of(mirror: MirrorEntry, link: LinkEntry | None) -> MirrorStatus:
    """Return what is shown of a mirror, its link's state included; `None`: its link is gone."""
    own_status = MirrorStatus(mirror.state)
    if own_status not in {_M.ACTIVE, _M.PAUSED}:
        return own_status
    shown = LinkStatus.FAILED if link is None else link_status(link)
    if shown is LinkStatus.FAILED:
        return _M.LINK_FAILED
    if shown is LinkStatus.PAUSED:
        return _M.LINK_PAUSED
    if own_status is _M.PAUSED:
        return own_status
    is_away = mirror.trouble is not None and mirror.trouble.code != RECORDS_REFUSED
    return _M.SOURCE_UNAVAILABLE if shown is LinkStatus.UNAVAILABLE or is_away else own_status


def since_of(mirror: MirrorEntry, link: LinkEntry | None) -> int:
    """Return when a mirror came into the state that is shown of it; 0: not known, such as when its link was paused."""
    shown = status_of(mirror, link)
    if shown not in {_M.LINK_PAUSED, _M.LINK_FAILED, _M.SOURCE_UNAVAILABLE}:
        return mirror.since_ms
    imposed = None if shown is _M.LINK_PAUSED or link is None else link.trouble
    trouble = mirror.trouble if shown is _M.SOURCE_UNAVAILABLE and imposed is None else imposed
    return 0 if trouble is None else trouble.since_ms


@dataclass(frozen=True, slots=True)
class TransitionRequest:
    """When something is asked for, and under which id where it takes several steps."""

    now_ms: int
    operation: str = ""
    is_given_up: bool = False
    """The source of a reversal takes records again."""


def asked_for(
    full_name: str, mirror: MirrorEntry, named_link: Named | None, verb: str, request: TransitionRequest
) -> MirrorEntry:
    """Return what a mirror is that begins what a verb asks for.

    Raises:
        UserError: The verb is not legal in its state: it says what is.
    """
    status = status_of(mirror, None if named_link is None else named_link[1])
    is_suspended = mirror.operation is not None and status is _M.PAUSED
    if is_suspended and verb == PROMOTE:
        message = f"mirror {full_name}: cannot promote while a reversal is suspended"
        raise UserError(message, hint="Possible in this state: resume, failover.")
    condition = REVERSAL_SUSPENDED if is_suspended and verb == RESUME else ""
    end = stepped(full_name, status, verb, condition)
    if verb in REVERSALS:
        check_reversible(full_name, mirror.source, named_link)
    return _begin_verb(mirror, verb, end, request)


def stepped(full_name: str, status: MirrorStatus, verb: str, condition: str = "") -> MirrorStatus:
    """Return where a verb leads.

    Raises:
        UserError: It is not legal in that state: it says what is.
    """
    return MIRROR.step(status, verb, condition=condition, subject=f"mirror {full_name} is {status}")


def _begin_verb(mirror: MirrorEntry, verb: str, end: MirrorStatus, request: TransitionRequest) -> MirrorEntry:
    after = replace(mirror, state=end.value, since_ms=request.now_ms)
    if verb in {PAUSE, RESUME}:
        return after
    if verb == FAILOVER:
        is_untouched = mirror.state == _M.PENDING_SETUP_FOR_RESTORE
        return replace(_end_operation(after), trouble=None, stopped_by=FAILOVER, is_untouched=is_untouched)
    return replace(after, operation=Operation(request.operation, verb), trouble=None)


def _end_operation(mirror: MirrorEntry) -> MirrorEntry:
    """Return a mirror whose operation is over, and known to be: whoever comes late does not begin it again."""
    if mirror.operation is None:
        return mirror
    return replace(mirror, operation=None, ended=(*mirror.ended, mirror.operation.id)[-_KNOWN_ENDED:])


_KNOWN_ENDED: Final = 8


def check_reversible(full_name: str, other: str, named_link: Named | None) -> None:
    """Refuse to reverse or restore over a link that goes one way, or where a mirror has another name than its source.

    `other` is the topic on the other cluster. Its half of the link may be the one that has a prefix.

    Raises:
        UserError: So it is.
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
    """The mirror on the other cluster that an ordinary topic becomes a mirror of."""

    link: str
    name: str
    topic_id: str


def joined(
    full_name: str,
    mirror: MirrorEntry | None,
    status: MirrorStatus,
    of: tuple[Peer, LinkEntry],
    begun: tuple[Operation, int],
) -> MirrorEntry:
    """Return the entry of an ordinary topic that becomes the mirror of its own mirror.

    `mirror` is its entry as a mirror that was stopped, `status` what is shown of it; `begun` is the operation, and when
    it began, in ms. The same operation once more changes nothing.

    Raises:
        UserError: The topic is a mirror, its link goes one way or has a prefix, or the operation is over.
    """
    peer, link = of
    operation, now_ms = begun
    if mirror is not None and mirror.operation is not None and mirror.operation.id == operation.id:
        return mirror
    if mirror is not None and operation.id in mirror.ended:
        raise over_error(full_name, mirror)
    check_reversible(full_name, peer.name, (peer.link, link))
    if operation.verb == RESTORE:
        end = stepped(full_name, status, operation.verb)
    elif status in {_M.REGULAR, _M.STOPPED}:
        end = MIRROR.follow(status, _M.PENDING_MIRROR)
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


def aimed(full_name: str, mirror: MirrorEntry, operation: str, ends: Mapping[int, int]) -> MirrorEntry:
    """Return a mirror whose operation knows where it is to end; what stands there already stays.

    Raises:
        UserError: Another operation is under way, or none.
    """
    current = under_way(full_name, mirror, operation)
    return mirror if current.ends is not None else replace(mirror, operation=replace(current, ends=dict(ends)))


def advanced(full_name: str, mirror: MirrorEntry, to: MirrorStatus, request: TransitionRequest) -> MirrorEntry:
    """Return a mirror in the next state of its operation; where it is there already, it is as it was.

    Raises:
        UserError: Another operation is under way, or the table has no such move.
    """
    if mirror.operation is None and mirror.state == to and to in _ENDS:
        return mirror  # Somebody was faster, and that was the last step.
    current = under_way(full_name, mirror, request.operation)
    if mirror.state == to:
        return mirror
    end = MIRROR.follow(MirrorStatus(mirror.state), to)
    is_shut = current.ends is not None and not request.is_given_up
    if mirror.state == _M.PENDING_SYNCHRONIZE and end is _M.ACTIVE and is_shut:
        message = f"mirror {full_name} is {mirror.state}, and its source is shut: its reversal cannot be taken back"
        raise UserError(message, hint="Go on with: reconciler run --once --only mirror")
    after = replace(mirror, state=end.value, since_ms=request.now_ms, trouble=None)
    if end is _M.STOPPED:
        after = replace(after, stopped_by=current.verb)
    return _end_operation(after) if end in _ENDS else after


_ENDS: Final = frozenset({_M.STOPPED, _M.ACTIVE, _M.PAUSED})


def under_way(full_name: str, mirror: MirrorEntry, operation: str) -> Operation:
    """Return the operation that a mirror goes through.

    Raises:
        UserError: Another one is under way, or none.
    """
    if mirror.operation is None or mirror.operation.id != operation:
        raise over_error(full_name, mirror)
    return mirror.operation


def over_error(full_name: str, mirror: MirrorEntry) -> UserError:
    """Return what is said to the process that comes late."""
    message = f"mirror {full_name} is {mirror.state}, and that operation is over"
    return UserError(message, hint="It was failed over or finished in the meantime: look again.")


def troubled(
    mirror: MirrorEntry, trouble: Trouble | None, *, fails: bool = False, operation: str | None = None
) -> MirrorEntry:
    """Return a mirror with why it cannot fetch or go on, since when for the first time; `fails`: for good.

    A mirror whose mirroring is over has no troubles; what kept an `operation` from going on is none when it is over.
    """
    if mirror.is_stopped or mirror.state == _M.FAILED:
        return mirror
    if operation is not None and (mirror.operation is None or mirror.operation.id != operation):
        return mirror
    if fails and trouble is not None and MirrorStatus(mirror.state) in {_M.ACTIVE, _M.PAUSED}:
        return replace(mirror, state=_M.FAILED.value, since_ms=trouble.since_ms, trouble=trouble)
    return replace(mirror, trouble=_keep_since(mirror.trouble, trouble))


def link_troubled(link: LinkEntry, status: LinkStatus, trouble: Trouble | None) -> LinkEntry:
    """Return a link with whether it reaches its source: ACTIVE, UNAVAILABLE or FAILED."""
    return replace(link, status=status.value, trouble=_keep_since(link.trouble, trouble))


def task_troubled(link: LinkEntry, task: str, trouble: Trouble | None) -> LinkEntry:
    """Return a link with what is wrong with one of its tasks, or that nothing is any more."""
    others = {key: other_trouble for key, other_trouble in link.tasks.items() if key != task}
    known = _keep_since(link.tasks.get(task), trouble)
    return replace(link, tasks=others if known is None else {**others, task: known})


def _keep_since(before: Trouble | None, now: Trouble | None) -> Trouble | None:
    """Return the trouble there is now; one that goes on has its first time, so that nothing is written again."""
    if before is None or now is None or before.code != now.code:
        return now
    return replace(now, since_ms=before.since_ms)


def begun(mirror: MirrorEntry, offsets: Mapping[int, int]) -> MirrorEntry:
    """Return a mirror that knows where it begins; what stands there stays, partitions that came later are added."""
    return replace(mirror, begins={**offsets, **(mirror.begins or {})})


def is_done(mirror: MirrorEntry, verb: str) -> bool:
    """Tell whether a verb was asked before, and its answer was lost; what came after it is nobody's business here."""
    match verb:
        case "failover":
            return mirror.state == _M.STOPPED
        case "pause":
            return mirror.state == _M.PAUSED
        case _:
            return mirror.state in {_M.ACTIVE, _M.PENDING_SYNCHRONIZE}


# What a link says about its mirrors: which configs follow the source, which may be deleted, what they are called.


_OVER: Final = frozenset({MirrorStatus.FAILED, MirrorStatus.STOPPED})


def synced_configs(link: LinkEntry) -> tuple[str, ...]:
    """Return the configs a link syncs, sorted: its complete list, else those of the platform."""
    listed = (link.declared.get("topicConfigSync") or {}).get("include", SYNCED_BY_DEFAULT)
    return tuple(sorted(key for key in listed if not is_never_synced(key)))


def created_link(name: str, existing: LinkEntry | None, new: LinkEntry) -> LinkEntry:
    """Return the entry of a link that is created; an existing one that asks for the same stays.

    Raises:
        UserError: The link exists and differs, its list of synced configs is not complete, or it lacks filters.
    """
    check_synced(name, new)
    new = replace(new, declared=with_filters(name, new.declared))
    if existing is None:
        return new
    if (existing.source_cluster, existing.declared) != (new.source_cluster, new.declared):
        raise UserError(f"link {name} exists and differs", hint="Change it instead of creating it.")
    return existing


def altered_link(name: str, link: LinkEntry, declared: Json) -> LinkEntry:
    """Return the entry of a link that is declared otherwise; its id, source and state stay.

    Raises:
        UserError: Its list of synced configs is not complete, or it lacks filters.
    """
    after = replace(link, declared=with_filters(name, declared))
    check_synced(name, after)
    return after


def check_same_link(name: str, link: LinkEntry | None, link_id: str | None) -> None:
    """Refuse to delete a link that is not the one that was planned; `None`: any.

    Raises:
        StalePlanError: It has another id.
    """
    if link is not None and link_id not in {None, link.id}:
        raise StalePlanError(f"link {name} was deleted and created again since it was looked at", hint="Plan again.")


def check_same_source(full_name: str, mirror: MirrorEntry, source: SourceTopic) -> None:
    """Refuse to follow a topic that only has the name of a mirror's source.

    Raises:
        SourceChangedError: The source has another topic id.
    """
    if source.incarnation is None or mirror.source_topic_id in {None, source.incarnation}:
        return
    message = f"the source {mirror.source} of mirror {full_name} was deleted and created again (its topic id changed)"
    hint = "Delete the mirror and make it again to copy the new topic."
    raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)


def check_synced(name: str, link: LinkEntry) -> None:
    """Refuse a list of synced configs that is not complete.

    Raises:
        UserError: It lacks what is always synced.
    """
    missing = sorted(set(ALWAYS_SYNCED) - set(synced_configs(link)))
    if missing:
        message = f"link {name}: topicConfigSync.include lacks {', '.join(missing)}"
        raise UserError(message, hint="The list is complete: add these; they are always synced.")


def check_own(full_name: str, synced: Iterable[str], keys: Iterable[str]) -> None:
    """Refuse to set on a mirror what follows its source.

    Raises:
        UserError: Names what follows.
    """
    following = sorted(set(keys) & {*synced, "partitions"})
    if following:
        message = f"mirror {full_name} follows its source in {', '.join(following)}"
        raise UserError(message, hint="Change it on the source.")


def mirror_name(source: str, link: LinkEntry) -> str:
    """Return what a link calls the mirror of a topic: its prefix goes before the topic's own name."""
    namespace, own = split_name(source)
    return join_name(namespace, f"{link.declared.get('prefix', '')}{own}")


def check_mirrored(full_name: str, source: str, named_link: Named) -> None:
    """Refuse a source that is never mirrored, and a name of one's own: a mirror is found by its source's.

    Raises:
        UserError: So it is.
    """
    if is_never_mirrored(source):
        message = f"mirror {full_name}: {source} is a topic of the platform's own, and never mirrored"
        raise UserError(message, hint="Leave it out: each cluster keeps its own.")
    wanted = mirror_name(source, named_link[1])
    if full_name != wanted:
        message = f"a mirror of {source} over link {named_link[0]} is called {wanted}, and not {full_name}"
        raise UserError(message, hint="Give the link a prefix where the name is taken.")


def check_deletable(full_name: str, mirror: MirrorEntry, named_link: Named | None) -> None:
    """Refuse to delete a mirror that cannot be deleted now.

    Raises:
        UserError: It is being promoted, reversed or restored.
        BlockedError: The auto-create filters of its link take it: it would be made again, with all it had.
    """
    status = status_of(mirror, None if named_link is None else named_link[1])
    if "delete" not in MIRROR.legal(status):
        message = f"mirror {full_name} is {status}: cannot delete while {status}"
        raise UserError(message, hint=f"Possible in this state: {', '.join(MIRROR.legal(status))}.")
    if status in _OVER or named_link is None or not _auto_creates(named_link[1], mirror.source):
        return
    message = (
        f"mirror {full_name} cannot be deleted: the autoCreate filters of link {named_link[0]} take {mirror.source}"
    )
    raise BlockedError(message, hint="Exclude it there or disable autoCreate first; or fail it over, then delete it.")


def check_unused(name: str, mirrors: Iterable[tuple[str, MirrorEntry]]) -> None:
    """Refuse to delete a link with mirrors.

    Raises:
        BlockedError: It has some that are not stopped.
    """
    live = [f"{topic} ({mirror.state})" for topic, mirror in mirrors if not mirror.is_stopped]
    if live:
        message = f"link {name} has mirrors that are not stopped: {', '.join(live[:5])}{' …' if live[5:] else ''}"
        raise BlockedError(message, hint="Promote, fail over or delete them first.")


def _auto_creates(link: LinkEntry, source: str) -> bool:
    """Tell whether a link would make a mirror of a topic again."""
    declared = link.declared.get("autoCreate")
    auto = AutoCreateSpec() if declared is None else AutoCreateSpec.model_validate(declared)
    return auto.enabled and is_auto_created(auto.filters, source)


# The filters of a link as its destination keeps them: what is enabled needs some, what is disabled has none.


AUTO_CREATE: Final = "autoCreate"
OFFSETS: Final = "consumerOffsetSync"


def auto_create_filters(link: LinkEntry) -> tuple[NameFilter, ...]:
    """Return which topics a link makes mirrors of; none where it makes none."""
    declared = link.declared.get(AUTO_CREATE) or {}
    if not declared.get("enabled", False):
        return ()
    return tuple(NameFilter.model_validate(name_filter) for name_filter in declared.get("filters", ()))


def auto_created(link: LinkEntry, sources: Iterable[str]) -> dict[str, str]:
    """Return the sources that the filters of a link take, by the full names of their mirrors."""
    filters = auto_create_filters(link)
    return {mirror_name(source, link): source for source in sorted(sources) if is_auto_created(filters, source)}


def with_filters(name: str, declared: Json) -> Json:
    """Return what is asked of a link, without the filters of what it does not do (F-C-023).

    Raises:
        UserError: It is to make mirrors or bring offsets, and nothing says which.
    """
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


# What a link keeps in step beside records, as its two clusters tell it: topics, group offsets, access rules.


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
class GroupOffsetsResult:
    """What came of bringing a group's offsets to the cluster of the mirrors."""

    is_changed: bool = False
    is_clamped: bool = False
    """Some lay beyond what is mirrored yet: they were set to its end, and are to be brought again."""
    reading: tuple[str, ...] = ()
    """Mirrors that the group itself reads here; then nothing was brought."""
    own: tuple[str, ...] = ()
    """Mirrors of which the group has offsets of its own here; of others they were brought."""


RuleFields: TypeAlias = Mapping[str, tuple[str, ...]]
"""Access rules of one topic or namespace, path → operations (`resources/acls.py`)."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """Access rules by full names; what has none is absent."""

    topics: Mapping[str, RuleFields] = field(default_factory=dict)
    namespaces: Mapping[str, RuleFields] = field(default_factory=dict)


# The ACL filters of a link against access rules: what of a rule a filter is about is taken, the rest is left. Pure.
#
# Of a rule about reading and writing, a filter on reading takes the reading. Filters are Kafka's: an absent word is
# any.


_ANY: Final = frozenset({"any", "*"})
_KINDS: Final = {"topics": "topic", "groups": "group", "transactional-ids": "transactional-id"}
LITERAL: Final = "literal"
PREFIXED: Final = "prefixed"


def taken_rules(filters: Sequence[AclFilter], rules: AccessRules) -> AccessRules:
    """Return what filters take of the rules of topics and namespaces; what is left without rules is absent."""
    topics = {name: _take_rules(filters, name, fields, is_topic=True) for name, fields in rules.topics.items()}
    namespaces = {name: _take_rules(filters, name, fields, is_topic=False) for name, fields in rules.namespaces.items()}
    return AccessRules(
        {name: fields for name, fields in topics.items() if fields},
        {name: fields for name, fields in namespaces.items() if fields},
    )


def _take_rules(filters: Iterable[AclFilter], where: str, fields: RuleFields, *, is_topic: bool) -> RuleFields:
    rules = [rule_at(path, operations) for path, operations in fields.items()]
    narrowed = (_narrow_rule(acl_filter, rule, where, is_topic=is_topic) for acl_filter in filters for rule in rules)
    return rule_fields(rule for rule in narrowed if rule is not None)


def _narrow_rule(acl_filter: AclFilter, rule: NamespaceAcl, where: str, *, is_topic: bool) -> NamespaceAcl | None:
    """Return what of a rule a filter is about; `None`: nothing."""
    who = (
        _is_match(acl_filter.principal, rule.principal)
        and _is_match(acl_filter.host, rule.host)
        and _is_word(acl_filter.permission, rule.permission)
    )
    narrowed: Mapping[str, tuple[str, ...]] = {
        "operations": tuple(one for one in rule.operations if _is_word(acl_filter.operation, one)),
        "resources": tuple(one for one in rule.resources if _is_word(acl_filter.resource_type, _KINDS[one])),
        "names": tuple(name for name in rule.names if _is_named(acl_filter, *_pattern(where, name, is_topic=is_topic))),
    }
    return rule.model_copy(update=dict(narrowed)) if who and all(narrowed.values()) else None


def _pattern(where: str, name: str, *, is_topic: bool) -> tuple[str, str]:
    """Return how a rule names what it is about, by full name: as a whole, or by its beginning."""
    if is_topic:
        return LITERAL, where
    return (PREFIXED, f"{where}:{name[:-1]}") if name.endswith("*") else (LITERAL, f"{where}:{name}")


def _is_named(acl_filter: AclFilter, kind: str, name: str) -> bool:
    pattern_type = acl_filter.pattern_type.lower()
    if pattern_type == "match":  # Whatever would be about something of that name.
        return acl_filter.resource_name == "*" or (
            acl_filter.resource_name.startswith(name) if kind == PREFIXED else acl_filter.resource_name == name
        )
    return _is_match(acl_filter.resource_name, name) and (pattern_type in _ANY or pattern_type == kind)


def _is_match(wanted: str, actual: str) -> bool:
    return wanted in {"*", actual}


def _is_word(wanted: str, actual: str) -> bool:
    word = wanted.lower().replace("_", "-")
    return word in _ANY or word == actual


# Access rules that a link brings: those it brought are remembered, so that they go when they go at the source. Pure.
#
# A rule that stood there before is not the link's, even where the source has the same: it stays.


def brought(
    current: RuleFields, before: RuleFields, wanted: RuleFields
) -> tuple[Mapping[str, tuple[str, ...] | None], dict[str, tuple[str, ...]]]:
    """Return the changes to the rules that are there, and which rules are the link's then, by path and operation.

    `before` are those it brought the last time.
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
