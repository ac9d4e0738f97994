"""Transitions of mirrors over two clusters: the first step that is not done, again and again, until all are.

Every step is durable on its own cluster before the next, so it does not matter who takes it: a run that was killed is
gone on with by the next one, and of two at once one finds that the other was faster. Both sides are never writable.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.errors import IncompleteError, ReconcilerError
from reconciler.lifecycles.mirror import MIRROR, MirrorStatus
from reconciler.providers.base import go_on
from reconciler.resources.mirroring import Trouble
from reconciler.workflow.linking.transitions import origins
from reconciler.workflow.linking.transitions.checks import (
    broken_off,
    check_other_half,
    check_shut,
    check_source,
    ended,
    source_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from reconciler.providers.base import LinksOfCluster, Provider
    from reconciler.records.log import Bounds
    from reconciler.resources.mirroring import MirrorSeen, Operation, Truncated

_M = MirrorStatus

PROMOTE: Final = "promote"
RESTORE: Final = "truncate-and-restore"
REVERSALS: Final = frozenset({"reverse-and-start", "reverse-and-pause"})

UNDER_WAY: Final = frozenset(
    {_M.PENDING_STOPPED, _M.PENDING_SYNCHRONIZE, _M.PENDING_MIRROR, _M.PENDING_SETUP_FOR_RESTORE, _M.PENDING_RESTORE}
)
"""States in which there is something to drive."""


@dataclass(frozen=True)
class Driver:
    """Drives the mirrors of some clusters, by name. Safe to use again after any failure."""

    providers: Mapping[str, Provider]
    copy: Callable[[MirrorSeen, Mapping[int, int] | None], object]
    """Brings a mirror to these ends, or to those its source has now."""
    sync: Callable[[MirrorSeen], object]
    """Brings configs and groups of a mirror to what its source has, for the last time."""
    new_id: Callable[[], str]
    may_go_on: Callable[[], None] = field(default=go_on)
    """Asked before every step; may raise: whoever comes next goes on."""

    def promote(self, cluster: str, full_name: str) -> MirrorSeen:
        """Let a mirror become an ordinary topic that has all its source has; drives a promotion that has begun.

        Raises:
            UserError: That is not legal in its state.
            IncompleteError: It could not reach its source's ends; it goes on when it can.
            RetryableError: Its source does not answer.
        """
        links = self._links(cluster)
        here = links.mirror(full_name)
        if not _is_begun(here, {PROMOTE}):
            if PROMOTE in MIRROR.legal(here.status):
                check_source(self.providers, here)  # Without it, nothing is begun.
            links.ask(full_name, PROMOTE, operation=self.new_id(), may_go_on=self.may_go_on)
        return ended(self.drive(cluster, full_name), {PROMOTE})

    def reverse(self, cluster: str, full_name: str, *, is_paused: bool = False) -> MirrorSeen:
        """Let a mirror and its source change roles without loss; return the new mirror, which is on the other side.

        Raises:
            UserError: That is not legal in its state, the link is not bidirectional, or has no half over there.
            RetryableError: One of the two does not answer.
        """
        verb = "reverse-and-pause" if is_paused else "reverse-and-start"
        links = self._links(cluster)
        here = links.mirror(full_name)
        if not _is_begun(here, REVERSALS):
            if verb in MIRROR.legal(here.status):
                check_other_half(self.providers, here)
                check_source(self.providers, here)
                # Most is copied while producers go on; and where nothing can be copied, nobody is shut out for it.
                self.may_go_on()
                self.copy(here, None)
            links.ask(full_name, verb, operation=self.new_id(), may_go_on=self.may_go_on)
        ended(self.drive(cluster, full_name), REVERSALS)
        return ended(self._links(here.source_cluster).mirror(here.source), REVERSALS)

    def restore(self, cluster: str, full_name: str) -> tuple[MirrorSeen, Mapping[int, Truncated]]:
        """Let the original source of a stopped mirror become its mirror; what was written here since is cut off.

        Return the mirror, and what was cut off each partition.

        Raises:
            UserError: Nothing that is stopped was a mirror of it, or the link is not bidirectional.
            RetryableError: The other cluster does not answer.
        """
        peer = self.restorable(cluster, full_name)
        here = origins.mirror_at(self._links(cluster), full_name)
        begun = None if here is None or here.operation is None else here.operation
        operation = begun.id if begun is not None and begun.verb == RESTORE else self.new_id()
        self._links(cluster).join(full_name, peer, operation=operation, verb=RESTORE, may_go_on=self.may_go_on)
        cut: dict[int, Truncated] = {}
        return ended(self.drive(cluster, full_name, cut), {RESTORE}), cut

    def restorable(self, cluster: str, full_name: str) -> MirrorSeen:
        """Return the stopped mirror whose original source a topic is.

        Raises:
            UserError: There is none that could be restored from; says what is missing.
        """
        return origins.restorable(self.providers, cluster, full_name)

    def cuts(self, cluster: str, full_name: str, peer: MirrorSeen) -> dict[int, int]:
        """Return where each partition of an original source is to be cut: where it and its mirror agree last."""
        return origins.cuts(self.providers, cluster, full_name, peer)

    def drive(self, cluster: str, full_name: str, cut: dict[int, Truncated] | None = None) -> MirrorSeen:
        """Take steps until a transition has ended, and return what the mirror is then.

        What keeps it from going on is noted on it, and raised.
        """
        links = self._links(cluster)
        here = links.mirror(full_name)
        while here.status in UNDER_WAY:
            self.may_go_on()
            try:
                after = self._step(links, here, {} if cut is None else cut)
            except ReconcilerError as error:
                now = links.mirror(full_name)
                if _place(now) == _place(here):
                    self._note(links, here, error)
                    raise
                after = now  # Somebody was faster.
            if after.status is here.status and after.operation == here.operation:
                return after
            here = after
        if here.status is _M.STOPPED and here.stopped_by in REVERSALS:
            self._go_on_there(here)
        return here

    def _step(self, links: LinksOfCluster, here: MirrorSeen, cut: dict[int, Truncated]) -> MirrorSeen:
        operation = here.operation
        if operation is None:
            return here  # Nothing says what it waits for.
        match here.status:
            case _M.PENDING_STOPPED if operation.verb == PROMOTE:
                return self._promote(links, here, operation)
            case _M.PENDING_SYNCHRONIZE:
                return self._synchronize(links, here, operation)
            case _M.PENDING_STOPPED:
                self.sync(here)
                check_shut(self.providers, here)
                return self._advance(links, here, _M.STOPPED)
            case _M.PENDING_MIRROR:
                return self._become_mirror(links, here, operation)
            case _M.PENDING_SETUP_FOR_RESTORE:
                return self._set_up(links, here, operation)
            case _M.PENDING_RESTORE:
                return self._restore(links, here, operation, cut)
            case _:
                return here

    def _promote(self, links: LinksOfCluster, here: MirrorSeen, operation: Operation) -> MirrorSeen:
        if not operation.ends:
            bounds = self._bounds(here)
            ends = {partition: bound.end for partition, bound in bounds.items()}
            here = links.aim(here.name, operation=operation.id, ends=ends)
        self._copy_all(links, here)
        self.sync(here)
        return self._advance(links, here, _M.STOPPED)

    def _synchronize(self, links: LinksOfCluster, here: MirrorSeen, operation: Operation) -> MirrorSeen:
        """Shut the source, which becomes a mirror; then nothing can be missed."""
        there = self._links(here.source_cluster)
        there.join(here.source, here, operation=operation.id, verb=operation.verb, may_go_on=self.may_go_on)
        bounds = self._bounds(here)
        here = links.aim(here.name, operation=operation.id, ends={part: bound.end for part, bound in bounds.items()})
        self._copy_all(links, here)
        return self._advance(links, here, _M.PENDING_STOPPED)

    def _become_mirror(self, links: LinksOfCluster, here: MirrorSeen, operation: Operation) -> MirrorSeen:
        """Go on where the old mirror has stopped; until then the old mirror is what is driven."""
        peer = self._peer(here)
        if peer.operation is not None and peer.operation.id == operation.id:
            if peer.status not in UNDER_WAY:
                return here  # Suspended: whoever paused it resumes it, or fails it over.
            self.drive(here.source_cluster, here.source)
            return links.mirror(here.name)
        if peer.status is not _M.STOPPED or peer.stopped_by not in REVERSALS:
            raise broken_off(here, peer)
        links.stand(here.name, peer.topic_id, self._bounds(here), operation=operation.id)
        return self._advance(links, here, _M.PAUSED if operation.verb == "reverse-and-pause" else _M.ACTIVE)

    def _set_up(self, links: LinksOfCluster, here: MirrorSeen, operation: Operation) -> MirrorSeen:
        peer = self._peer(here)
        origins.check_restorable(self.providers, here.cluster, here.name, peer)
        links.join(here.name, peer, operation=operation.id, verb=RESTORE, may_go_on=self.may_go_on)  # All is sealed.
        here = links.aim(here.name, operation=operation.id, ends=self.cuts(here.cluster, here.name, peer))
        return self._advance(links, here, _M.PENDING_RESTORE)

    def _restore(
        self, links: LinksOfCluster, here: MirrorSeen, operation: Operation, cut: dict[int, Truncated]
    ) -> MirrorSeen:
        # Sealed once more: who let producers in, and comes late, may have done that since.
        links.join(here.name, self._peer(here), operation=operation.id, verb=RESTORE, may_go_on=self.may_go_on)
        cut |= links.truncate(here.name, operation=operation.id, may_go_on=self.may_go_on)
        self.sync(here)
        links.stand(here.name, here.source_topic_id or "", self._bounds(here), operation=operation.id)
        return self._advance(links, here, _M.ACTIVE)

    def _go_on_there(self, here: MirrorSeen) -> None:
        """Let the old source of a reversal become the mirror, where it waits for that."""
        there = origins.mirror_at(self._links(here.source_cluster), here.source)
        if there is not None and there.status is _M.PENDING_MIRROR and there.source == here.name:
            self.drive(here.source_cluster, here.source)

    def _copy_all(self, links: LinksOfCluster, here: MirrorSeen) -> None:
        ends = {} if here.operation is None else here.operation.ends
        self.copy(here, ends)
        reached = links.positions(here.name)
        behind = {part: end - reached[part].end for part, end in ends.items() if reached[part].end < end}
        if behind:
            part, lag = next(iter(sorted(behind.items())))
            message = f"partition {part} of mirror {here.name} lacks {lag:,} records of its source"
            hint = "A transaction is open there: it goes on once that has ended. `mirror failover` does not wait."
            raise IncompleteError(message, hint=hint)

    def _advance(self, links: LinksOfCluster, here: MirrorSeen, to: MirrorStatus) -> MirrorSeen:
        operation = "" if here.operation is None else here.operation.id
        return links.advance(here.name, to, operation=operation, may_go_on=self.may_go_on)

    def _peer(self, here: MirrorSeen) -> MirrorSeen:
        return self._links(here.source_cluster).mirror(here.source)

    def _provider(self, cluster: str) -> Provider:
        return origins.provider_of(self.providers, cluster)

    def _links(self, cluster: str) -> LinksOfCluster:
        return self._provider(cluster).links

    def _bounds(self, mirror: MirrorSeen) -> Mapping[int, Bounds]:
        """Return where the partitions of a mirror's source begin and end now."""
        return self._provider(mirror.source_cluster).log(source_of(mirror)).bounds()

    def _note(self, links: LinksOfCluster, here: MirrorSeen, error: ReconcilerError) -> None:
        """Keep why a transition does not end where `mirror errors` finds it; what it ends with is told anyway."""
        code = getattr(error, "code", None) or _CODES.get(type(error).__name__, "INTERNAL_ERROR")
        operation = None if here.operation is None else here.operation.id
        links.trouble(here.name, Trouble(code, error.message), operation=operation)


_CODES: Final = {
    "NotAuthorizedError": "AUTHORIZATION_ERROR",
    "RetryableError": "REMOTE_LINK_NOT_FOUND_ERROR",
    "IncompleteError": "INTERNAL_ERROR",
    "UserError": "INVALID_REQUEST_ERROR",
    "InvalidNamespaceError": "INVALID_TOPIC",
}


def _is_begun(here: MirrorSeen, verbs: Collection[str]) -> bool:
    return here.operation is not None and here.operation.verb in verbs and here.status in UNDER_WAY


def _place(here: MirrorSeen) -> tuple[MirrorStatus, str | None]:
    """Return how far a mirror is in which operation."""
    return here.status, None if here.operation is None else here.operation.id
