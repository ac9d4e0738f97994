"""Mirrors going from state to state: what may be asked of one, and how a transition ends. Pure, within one commit.

What a link imposes on its mirrors (paused, unreachable, broken) is kept in the link alone and shown by `status_of`:
where the link mends, each mirror is again what it was.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from reconciler.embedded.catalog.holding import check_served, check_unheld
from reconciler.embedded.catalog.linkentries import MirrorEntry, OperationEntry, TroubleEntry
from reconciler.embedded.catalog.lookups import link_named, topic_named
from reconciler.errors import UserError
from reconciler.lifecycles.mirror import MIRROR, REVERSAL_SUSPENDED, LinkStatus, MirrorStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.linkentries import LinkEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft

PROMOTE: Final = "promote"
FAILOVER: Final = "failover"
PAUSE: Final = "pause"
RESUME: Final = "resume"
RESTORE: Final = "truncate-and-restore"
REVERSE_AND_START: Final = "reverse-and-start"
REVERSE_AND_PAUSE: Final = "reverse-and-pause"
REVERSALS: Final = frozenset({REVERSE_AND_START, REVERSE_AND_PAUSE})

_M = MirrorStatus


def link_status(link: LinkEntry) -> LinkStatus:
    """Return what is shown of a link."""
    if link.status == LinkStatus.FAILED:
        return LinkStatus.FAILED
    return LinkStatus.PAUSED if link.declared.get("paused") else LinkStatus(link.status)


def status_of(mirror: MirrorEntry, link: LinkEntry | None) -> MirrorStatus:
    """Return what is shown of a mirror, its link's state included; `None`: its link is gone."""
    kept = MirrorStatus(mirror.state)
    if kept not in {_M.ACTIVE, _M.PAUSED}:
        return kept
    shown = LinkStatus.FAILED if link is None else link_status(link)
    if shown is LinkStatus.FAILED:
        return _M.LINK_FAILED
    if shown is LinkStatus.PAUSED:
        return _M.LINK_PAUSED
    if kept is _M.PAUSED:
        return kept
    return _M.SOURCE_UNAVAILABLE if shown is LinkStatus.UNAVAILABLE or mirror.trouble is not None else kept


def link_of(catalog: Catalog | Draft, mirror: MirrorEntry) -> tuple[str, LinkEntry] | None:
    """Return the link of a mirror, with its name; `None`: it is gone."""
    return next(((name, link) for name, link in catalog.links.items() if link.id == mirror.link_id), None)


@dataclass(frozen=True, slots=True)
class Asked:
    """When something is asked for, and under which id where it takes several steps."""

    now_ms: int
    operation: str = ""


def mirror_named(catalog: Catalog | Draft, full_name: str) -> tuple[TopicEntry, MirrorEntry]:
    """Return a topic that has a record as a mirror, be it stopped.

    Raises:
        UserError: There is no such topic, or it never was a mirror.
    """
    topic = topic_named(catalog, full_name)
    if topic.mirror is None:
        raise UserError(f"topic {full_name} is not mirrored", hint="See the mirrors with: reconciler mirror list")
    return topic, topic.mirror


def ask_mirror(draft: Draft, full_name: str, verb: str, asked: Asked) -> MirrorEntry:
    """Let a mirror begin what a verb asks for, and return what it is then.

    Raises:
        UserError: It is no mirror, or the verb is not legal in its state: it says what is.
    """
    _, mirror = mirror_named(draft, full_name)
    found = link_of(draft, mirror)
    status = status_of(mirror, None if found is None else found[1])
    is_suspended = mirror.operation is not None and status is _M.PAUSED
    if is_suspended and verb == PROMOTE:
        message = f"mirror {full_name}: cannot promote while a reversal is suspended"
        raise UserError(message, hint="Legal there: resume, failover.")
    condition = REVERSAL_SUSPENDED if is_suspended and verb == RESUME else ""
    end = _stepped(full_name, status, verb, condition)
    if verb in REVERSALS:
        _check_reversible(full_name, found)
    return _put(draft, full_name, _asked(mirror, verb, end, asked))


def _stepped(full_name: str, status: MirrorStatus, verb: str, condition: str) -> MirrorStatus:
    try:
        return MIRROR.step(status, verb, condition=condition)
    except UserError as error:
        error.message = f"mirror {full_name} is {status}: {error.message.removeprefix('mirror: ')}"
        raise


def _asked(mirror: MirrorEntry, verb: str, end: MirrorStatus, asked: Asked) -> MirrorEntry:
    after = replace(mirror, state=end.value, since_ms=asked.now_ms)
    if verb in {PAUSE, RESUME}:
        return after
    if verb == FAILOVER:
        return replace(_over(after), trouble=None, stopped_by=FAILOVER)
    return replace(after, operation=OperationEntry(asked.operation, verb), trouble=None)


def _over(mirror: MirrorEntry) -> MirrorEntry:
    """Return a mirror whose operation is over, and known to be: whoever comes late does not begin it again."""
    if mirror.operation is None:
        return mirror
    return replace(mirror, operation=None, ended=(*mirror.ended, mirror.operation.id)[-_KNOWN_ENDED:])


_KNOWN_ENDED: Final = 8


def _check_reversible(full_name: str, found: tuple[str, LinkEntry] | None) -> None:
    declared = {} if found is None else found[1].declared
    if declared.get("mode") != "bidirectional":
        message = f"mirror {full_name} cannot be reversed: its link is not bidirectional"
        raise UserError(message, hint="Promote or fail over, and link the other way.")
    if declared.get("prefix"):
        message = f"mirror {full_name} cannot be reversed: its link has a prefix"
        raise UserError(message, hint="Promote or fail over, and link the other way.")


@dataclass(frozen=True, slots=True)
class Peer:
    """The mirror on the other cluster that an ordinary topic here is to be a mirror of."""

    link: str
    name: str
    topic_id: str


def join_peer(draft: Draft, full_name: str, peer: Peer, verb: str, asked: Asked) -> MirrorEntry:
    """Let an ordinary topic become the mirror of its own mirror; once more under the same operation changes nothing.

    Raises:
        UserError: It is a mirror already, the link has no half here, or that operation is over.
    """
    topic, link = topic_named(draft, full_name), link_named(draft, peer.link)
    mirror = topic.mirror
    if mirror is not None and mirror.operation is not None and mirror.operation.id == asked.operation:
        return mirror
    if mirror is not None and asked.operation in mirror.ended:
        raise _over_error(full_name, mirror)
    check_unheld(full_name, topic, "to make it a mirror")
    check_served(full_name, topic)
    status = _M.REGULAR if mirror is None else status_of(mirror, link)
    if verb == RESTORE:
        end = _stepped(full_name, status, verb, "")
    elif status in {_M.REGULAR, _M.STOPPED}:
        end = MIRROR.follow(status, _M.PENDING_MIRROR)
    else:
        raise UserError(f"topic {full_name} is a mirror already ({status})", hint="Stop that mirror first.")
    _check_reversible(full_name, (peer.link, link))
    return _put(
        draft,
        full_name,
        MirrorEntry(
            link.id,
            peer.name,
            peer.topic_id,
            state=end.value,
            first_copy_done=True,
            since_ms=asked.now_ms,
            operation=OperationEntry(asked.operation, verb),
            ended=() if mirror is None else mirror.ended,
        ),
    )


def aim(draft: Draft, full_name: str, operation: str, ends: Mapping[int, int]) -> MirrorEntry:
    """Write down where an operation is to end; what stands there already stays.

    Raises:
        UserError: Another operation is under way, or none.
    """
    mirror, found = under_way(draft, full_name, operation)
    if found.ends is not None:
        return mirror
    return _put(draft, full_name, replace(mirror, operation=replace(found, ends=dict(ends))))


def advance(draft: Draft, full_name: str, to: MirrorStatus, asked: Asked) -> MirrorEntry:
    """Let a mirror go to the next state of its operation; where it is there already, nothing changes.

    Raises:
        UserError: Another operation is under way, or the table has no such move.
    """
    _, mirror = mirror_named(draft, full_name)
    if mirror.operation is None and mirror.state == to and to in _ENDS:
        return mirror  # Somebody was faster, and that was the last step.
    mirror, found = under_way(draft, full_name, asked.operation)
    if mirror.state == to:
        return mirror
    end = MIRROR.follow(MirrorStatus(mirror.state), to)
    after = replace(mirror, state=end.value, since_ms=asked.now_ms, trouble=None)
    if end is _M.STOPPED:
        after = replace(after, stopped_by=found.verb)
    if end in _ENDS:
        after = _over(after)
    return _put(draft, full_name, after)


_ENDS: Final = frozenset({_M.STOPPED, _M.ACTIVE, _M.PAUSED})


def under_way(catalog: Catalog | Draft, full_name: str, operation: str) -> tuple[MirrorEntry, OperationEntry]:
    """Return a mirror and the operation that it goes through.

    Raises:
        UserError: Another operation is under way, or none.
    """
    _, mirror = mirror_named(catalog, full_name)
    if mirror.operation is None or mirror.operation.id != operation:
        raise _over_error(full_name, mirror)
    return mirror, mirror.operation


def _over_error(full_name: str, mirror: MirrorEntry) -> UserError:
    message = f"mirror {full_name} is {mirror.state}, and that operation is over"
    return UserError(message, hint="Somebody failed it over or finished it meanwhile: look again.")


def set_trouble(
    draft: Draft, full_name: str, trouble: TroubleEntry | None, *, fails: bool = False, operation: str | None = None
) -> None:
    """Note why a mirror cannot fetch or go on, since when for the first time; `fails`: for good.

    A mirror whose mirroring is over has no troubles; what kept an `operation` from going on is none when it is over.
    """
    _, mirror = mirror_named(draft, full_name)
    if mirror.is_stopped or mirror.state == _M.FAILED:
        return
    if operation is not None and (mirror.operation is None or mirror.operation.id != operation):
        return
    if fails and trouble is not None and MirrorStatus(mirror.state) in {_M.ACTIVE, _M.PAUSED}:
        after = replace(mirror, state=_M.FAILED.value, since_ms=trouble.since_ms, trouble=trouble)
    else:
        after = replace(mirror, trouble=_since(mirror.trouble, trouble))
    _put(draft, full_name, after)


def set_link_trouble(draft: Draft, name: str, status: LinkStatus, trouble: TroubleEntry | None) -> None:
    """Note whether a link reaches its source: ACTIVE, UNAVAILABLE or FAILED."""
    link = link_named(draft, name)
    draft.put_link(name, replace(link, status=status.value, trouble=_since(link.trouble, trouble)))


def set_task_trouble(draft: Draft, name: str, task: str, trouble: TroubleEntry | None) -> None:
    """Note what is wrong with a task of a link, or that nothing is any more."""
    link = link_named(draft, name)
    others = {key: kept for key, kept in link.tasks.items() if key != task}
    known = _since(link.tasks.get(task), trouble)
    draft.put_link(name, replace(link, tasks=others if known is None else {**others, task: known}))


def _since(before: TroubleEntry | None, now: TroubleEntry | None) -> TroubleEntry | None:
    """Return the trouble there is now; one that goes on has its first time, so that nothing is written again."""
    if before is None or now is None or before.code != now.code:
        return now
    return replace(now, since_ms=before.since_ms)


def set_begins(draft: Draft, full_name: str, offsets: Mapping[int, int]) -> MirrorEntry:
    """Write down where a new mirror begins; what stands there already stays, partitions that came later are added."""
    _, mirror = mirror_named(draft, full_name)
    begins = {**offsets, **(mirror.begins or {})}
    return _put(draft, full_name, replace(mirror, begins=begins))


def drop_records(draft: Draft, link: LinkEntry) -> None:
    """Let the stopped mirrors of a link that goes be ordinary topics without a record (F-C-091)."""
    for name, topic in list(draft.topics.items()):
        if topic.mirror is not None and topic.mirror.link_id == link.id and topic.mirror.is_stopped:
            draft.put_topic(name, replace(topic, mirror=None))


def _put(draft: Draft, full_name: str, mirror: MirrorEntry) -> MirrorEntry:
    draft.put_topic(full_name, replace(draft.topics[full_name], mirror=mirror))
    return mirror
