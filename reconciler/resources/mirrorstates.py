"""A mirror going from state to state: what may be asked of one, and how a transition ends. Pure.

What a link imposes on its mirrors (paused, unreachable, broken) is kept in the link alone and shown by `status_of`:
where the link mends, each mirror is again what it was. `found` is a mirror's link with its name; `None`: it is gone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from reconciler.errors import UserError
from reconciler.lifecycles.mirror import MIRROR, REVERSAL_SUSPENDED, LinkStatus, MirrorStatus
from reconciler.resources.linkentries import MirrorEntry, OperationEntry
from reconciler.resources.mirroring import RECORDS_REFUSED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.resources.linkentries import LinkEntry, TroubleEntry

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
    is_away = mirror.trouble is not None and mirror.trouble.code != RECORDS_REFUSED
    return _M.SOURCE_UNAVAILABLE if shown is LinkStatus.UNAVAILABLE or is_away else kept


@dataclass(frozen=True, slots=True)
class Asked:
    """When something is asked for, and under which id where it takes several steps."""

    now_ms: int
    operation: str = ""


def asked_for(full_name: str, mirror: MirrorEntry, found: Named | None, verb: str, asked: Asked) -> MirrorEntry:
    """Return what a mirror is that begins what a verb asks for.

    Raises:
        UserError: The verb is not legal in its state: it says what is.
    """
    status = status_of(mirror, None if found is None else found[1])
    is_suspended = mirror.operation is not None and status is _M.PAUSED
    if is_suspended and verb == PROMOTE:
        message = f"mirror {full_name}: cannot promote while a reversal is suspended"
        raise UserError(message, hint="Legal there: resume, failover.")
    condition = REVERSAL_SUSPENDED if is_suspended and verb == RESUME else ""
    end = stepped(full_name, status, verb, condition)
    if verb in REVERSALS:
        check_reversible(full_name, found)
    return _asked(mirror, verb, end, asked)


def stepped(full_name: str, status: MirrorStatus, verb: str, condition: str = "") -> MirrorStatus:
    """Return where a verb leads.

    Raises:
        UserError: It is not legal in that state: it says what is.
    """
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


def check_reversible(full_name: str, found: Named | None) -> None:
    """Refuse to reverse or restore over a link that goes one way, or whose mirrors have other names.

    Raises:
        UserError: So it is.
    """
    declared = {} if found is None else found[1].declared
    if declared.get("mode") != "bidirectional":
        message = f"mirror {full_name} cannot be reversed: its link is not bidirectional"
        raise UserError(message, hint="Promote or fail over, and link the other way.")
    if declared.get("prefix"):
        message = f"mirror {full_name} cannot be reversed: its link has a prefix"
        raise UserError(message, hint="Promote or fail over, and link the other way.")


def aimed(full_name: str, mirror: MirrorEntry, operation: str, ends: Mapping[int, int]) -> MirrorEntry:
    """Return a mirror whose operation knows where it is to end; what stands there already stays.

    Raises:
        UserError: Another operation is under way, or none.
    """
    found = under_way(full_name, mirror, operation)
    return mirror if found.ends is not None else replace(mirror, operation=replace(found, ends=dict(ends)))


def advanced(full_name: str, mirror: MirrorEntry, to: MirrorStatus, asked: Asked) -> MirrorEntry:
    """Return a mirror in the next state of its operation; where it is there already, it is as it was.

    Raises:
        UserError: Another operation is under way, or the table has no such move.
    """
    if mirror.operation is None and mirror.state == to and to in _ENDS:
        return mirror  # Somebody was faster, and that was the last step.
    found = under_way(full_name, mirror, asked.operation)
    if mirror.state == to:
        return mirror
    end = MIRROR.follow(MirrorStatus(mirror.state), to)
    after = replace(mirror, state=end.value, since_ms=asked.now_ms, trouble=None)
    if end is _M.STOPPED:
        after = replace(after, stopped_by=found.verb)
    return _over(after) if end in _ENDS else after


_ENDS: Final = frozenset({_M.STOPPED, _M.ACTIVE, _M.PAUSED})


def under_way(full_name: str, mirror: MirrorEntry, operation: str) -> OperationEntry:
    """Return the operation that a mirror goes through.

    Raises:
        UserError: Another one is under way, or none.
    """
    if mirror.operation is None or mirror.operation.id != operation:
        raise over_error(full_name, mirror)
    return mirror.operation


def over_error(full_name: str, mirror: MirrorEntry) -> UserError:
    """Return what is said to whoever comes late."""
    message = f"mirror {full_name} is {mirror.state}, and that operation is over"
    return UserError(message, hint="Somebody failed it over or finished it meanwhile: look again.")


def troubled(
    mirror: MirrorEntry, trouble: TroubleEntry | None, *, fails: bool = False, operation: str | None = None
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
    return replace(mirror, trouble=_since(mirror.trouble, trouble))


def link_troubled(link: LinkEntry, status: LinkStatus, trouble: TroubleEntry | None) -> LinkEntry:
    """Return a link with whether it reaches its source: ACTIVE, UNAVAILABLE or FAILED."""
    return replace(link, status=status.value, trouble=_since(link.trouble, trouble))


def task_troubled(link: LinkEntry, task: str, trouble: TroubleEntry | None) -> LinkEntry:
    """Return a link with what is wrong with one of its tasks, or that nothing is any more."""
    others = {key: kept for key, kept in link.tasks.items() if key != task}
    known = _since(link.tasks.get(task), trouble)
    return replace(link, tasks=others if known is None else {**others, task: known})


def _since(before: TroubleEntry | None, now: TroubleEntry | None) -> TroubleEntry | None:
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
