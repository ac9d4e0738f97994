"""Transitions of mirrors over two clusters: promote, reverse, restore."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import TYPE_CHECKING, Final, Literal, assert_never, cast

from reconciler.errors import (
    IncompleteError,
    ReconcilerError,
    RetryableError,
    SourceChangedError,
    StalePlanError,
    UserError,
)
from reconciler.lifecycles import MIRROR, TWO_SIDED, MirrorStatus
from reconciler.operations.steps.link_sides import provider_named
from reconciler.planning.actions import Action, Transition
from reconciler.planning.resolve.mirror_sources import check_sides
from reconciler.providers.protocol import Provider, links_by_jobs, links_of
from reconciler.providers.protocol_links import Links, LinksByJobs
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of
from reconciler.resources.base import UNLIMITED
from reconciler.resources.measures import UndeletableError, agreed_ends, check_approved, cut_off
from reconciler.resources.mirror_link import MirrorTopic, fewer_partitions
from reconciler.resources.mirrors import (
    FAILOVER,
    NEVER_FETCHED,
    PROMOTE,
    RESTORE,
    REVERSALS,
    SOURCE_TOPIC_ID_CHANGED,
    Diverged,
    LinkSeen,
    MirrorSeen,
    Operation,
    Position,
    Stretch,
    Trouble,
    Truncated,
    WithDiverged,
)
from reconciler.runtime.retry import go_on
from reconciler.runtime.text import counted, first_few
from reconciler.runtime.threads import side_by_side

if TYPE_CHECKING:
    from reconciler.records.log import Bounds
    from reconciler.resources.measures import Measures
    from reconciler.resources.mirror_link import MirrorLinkSpec


# Original sources of stopped mirrors: which may be restored, from what, and where the two agree last.


def mirror_at(links: Links, full_name: str) -> MirrorSeen | None:
    """Return a topic as the mirror it is or was; `None`: it never was one."""
    return next(iter(links.mirrors(name=full_name)), None)


@dataclass(frozen=True, slots=True)
class StoppedMirrors:
    """The stopped mirrors whose original source a topic is: what it may be restored from."""

    providers: Mapping[str, Provider]
    cluster: str
    full_name: str
    found: tuple[MirrorSeen, ...]
    unanswered: tuple[ReconcilerError, ...] = ()
    """Why clusters that may have one do not say so."""
    over: tuple[str, ...] = ()
    """The links that were named; none: any."""

    def only(self) -> MirrorSeen:
        """Return the one that the topic can be restored from.

        Raises:
            UserError: There is none, or several can be; says which, and how one is chosen.
            RetryableError: The cluster that may have it does not answer.
        """
        if not self.found:
            for error in self.unanswered:
                raise error
            over = f" over link {first_few(self.over, _NAMED, grouping='')}" if self.over else ""
            what = f"topic {self.full_name} of cluster {self.cluster} cannot be restored"
            message = f"{what}: no stopped mirror of it is known{over}"
            hint = "Restore works on the original source of a stopped mirror, over a bidirectional link."
            raise UserError(message, hint=hint)
        refused: list[UserError] = []
        fitting: list[MirrorSeen] = []
        for peer in self.found:
            try:
                check_restorable(self.providers, self.cluster, self.full_name, peer)
            except UserError as error:
                refused.append(error)
            else:
                fitting.append(peer)
        match fitting:
            case [peer]:
                return peer
            case []:
                raise refused[0]
            case _:
                raise self._several(fitting)

    def _several(self, fitting: Sequence[MirrorSeen]) -> UserError:
        named = [str(address_of("mirror", each.cluster, each.name)) for each in fitting]
        links = [str(address_of("link", each.cluster, each.link)) for each in fitting]
        message = (
            f"topic {self.full_name} of cluster {self.cluster} can be restored from each of "
            f"{len(named)} stopped mirrors: {first_few(named, _NAMED, grouping='')}"
        )
        address = address_of("mirror", self.cluster, self.full_name)
        others = first_few(links[1:], _NAMED, grouping="")
        hint = f"Choose one by its link: reconciler mirror restore {address} --link {links[0]}. The others: {others}."
        return UserError(message, hint=hint)


def stopped_mirrors(
    providers: Mapping[str, Provider], cluster: str, full_name: str, over: Collection[str] | None = None
) -> StoppedMirrors:
    """Return what a topic may be restored from. `over`: only over links of these names.

    Only clusters at the other end of a link that can swap roles are asked. Where there is no such mirror, the others
    are asked, too: what is missing can then be said.
    """
    links = links_of(provider_named(providers, cluster)).links()
    asked = [link for link in links if link.declared.spec.source in providers and (over is None or link.name in over)]
    both_ways = [link for link in asked if is_both_ways(link)]

    def look(link: LinkSeen) -> Sequence[MirrorSeen] | ReconcilerError:
        try:
            there = links_of(providers[link.declared.spec.source]).mirrors(link.name, source=full_name)
        except ReconcilerError as error:
            return error
        return [
            mirror
            for mirror in there
            if (mirror.source, mirror.source_cluster) == (full_name, cluster) and mirror.status is MirrorStatus.STOPPED
        ]

    def over_links(links: Sequence[LinkSeen]) -> tuple[list[MirrorSeen], list[ReconcilerError]]:
        answers = list(side_by_side(look, links, name="restore"))
        mirrors_there = [mirror for answer in answers if not isinstance(answer, ReconcilerError) for mirror in answer]
        return mirrors_there, [answer for answer in answers if isinstance(answer, ReconcilerError)]

    found, unanswered = over_links(both_ways)
    if not found and not unanswered:
        found, _ = over_links([link for link in asked if not is_both_ways(link)])
    return StoppedMirrors(providers, cluster, full_name, tuple(found), tuple(unanswered), tuple(sorted(over or ())))


def is_both_ways(link: LinkSeen) -> bool:
    """Tell whether mirrors can swap roles over a link, as far as its half here says."""
    spec = link.declared.spec
    return spec.mode == "bidirectional" and not spec.prefix


def check_restorable(providers: Mapping[str, Provider], cluster: str, full_name: str, peer: MirrorSeen) -> None:
    """Refuse to restore a topic from a stopped mirror that is none of it as it is now.

    Raises:
        UserError: The mirror follows again, the topic was made anew or has more partitions, or it stopped last itself.
    """
    provider = provider_named(providers, cluster)
    topic = provider.source_topic(address_of("topic", cluster, full_name))
    what = f"topic {full_name} of cluster {cluster} cannot be restored from {peer.name} of cluster {peer.cluster}"
    if peer.status is not MirrorStatus.STOPPED:
        raise UserError(
            f"{what}: that is {peer.status}, and takes no records itself",
            hint="To let this one take records again: reconciler mirror failover "
            f"{address_of('mirror', cluster, full_name)}",
        )
    if peer.source_topic_id not in {None, topic.incarnation}:
        raise UserError(
            f"{what}: it was deleted and created again (SOURCE_TOPIC_ID_CHANGED)",
            hint="Delete it here, and mirror it afresh.",
        )
    if peer.partitions < topic.partitions:
        raise UserError(
            fewer_partitions((cluster, full_name), topic.partitions, (peer.cluster, peer.name), peer.partitions),
            hint=f"Declare {address_of('topic', peer.cluster, peer.name)} with `partitions: {topic.partitions}`, "
            "and apply that first.",
        )
    own = mirror_at(links_of(provider), full_name)
    is_of_each_other = own is not None and (own.source_cluster, own.source) == (peer.cluster, peer.name)
    is_last = own is not None and own.status is MirrorStatus.STOPPED and own.since_ms > peer.since_ms
    if own is not None and is_of_each_other and is_last and not _never_followed(provider, own):
        message = f"{what}: it stopped after that, which is the original source of the two"
        raise UserError(message, hint=f"Restore {peer.name} of cluster {peer.cluster} from it.")


def _never_followed(provider: Provider, own: MirrorSeen) -> bool:
    """Tell whether a topic was failed over in the middle of a restore: it has nothing of the other side yet."""
    found = links_of(provider).positions(own.name).values()
    return own.is_untouched or all(at.is_renumbered and at.fetched == NEVER_FETCHED for at in found)


def cuts(providers: Mapping[str, Provider], cluster: str, full_name: str, peer: MirrorSeen) -> dict[int, int]:
    """Return where each partition of an original source is to be cut: where it and its mirror agree last.

    Where the mirror has a map of offsets, the last records that both should have are compared. They agree no further
    than up to a record that another producer wrote to the mirror while it was one.
    """
    provider, topic = provider_named(providers, cluster), address_of("topic", cluster, full_name)
    topic_id = provider.source_topic(topic).incarnation
    other = provider_named(providers, peer.cluster)
    theirs, maps = links_of(other).positions(peer.name), links_by_jobs(other).offset_maps(peer.name)
    if maps is None:
        return agreed_ends(links_of(provider).positions(full_name), topic_id, theirs, peer.topic_id)
    from reconciler.jobs.ordered import agreed_by_maps  # noqa: PLC0415 - brings Arrow

    logs = provider.log(topic), other.log(address_of("topic", peer.cluster, peer.name))
    bounds = logs[0].bounds(), logs[1].bounds()
    own = {number: Position(at.start, at.end, at.epochs, is_renumbered=True) for number, at in bounds[0].items()}
    found = agreed_ends(own, topic_id, theirs, peer.topic_id)
    for each in links_by_jobs(other).foreign([peer.name], is_stopped=True).get(peer.name, ()):
        if each.partition in found:
            found[each.partition] = min(found[each.partition], maps[each.partition].source_of(each.start))
    return {**found, **agreed_by_maps(logs, bounds, maps, {number: at for number, at in found.items() if at})}


def with_diverged(providers: Mapping[str, Provider], actions: Iterable[Action], measures: Measures) -> Measures:
    """Return what was measured, with the records that only the topics have that are restored.

    That is where offsets do not say it; what cannot be compared is not measured.
    """
    asked = [action.after for action in actions if isinstance(action, Transition) and action.verb == RESTORE]
    restored = [mirror for mirror in asked if isinstance(mirror, MirrorTopic)]

    def looked(mirror: MirrorTopic) -> Sequence[Diverged] | ReconcilerError | None:
        links = links_of(providers[mirror.cluster]).by_jobs
        try:
            if links is None or links.diverged(mirror.name, {}) is None:
                return None
            peer = links_of(provider_named(providers, mirror.source_cluster)).mirror(mirror.source)
            return links.diverged(mirror.name, cuts(providers, mirror.cluster, mirror.name, peer))
        except ReconcilerError as error:
            return error

    found = dict(measures)
    for mirror, seen in zip(restored, side_by_side(looked, restored, name="compare"), strict=True):
        topic = address_of("topic", mirror.cluster, mirror.name)
        if isinstance(seen, UndeletableError) and topic in found:
            found[topic] = replace(found[topic], undeletable=seen)
        elif isinstance(seen, ReconcilerError):
            found.pop(topic, None)
        elif seen is not None and topic in found:
            found[topic] = replace(found[topic], diverged=tuple(seen))
    return found


# What must be true before a transition begins, or a mirror opens: looked at on the other side.


def source_of(mirror: MirrorSeen) -> Address:
    """Return the address of what a mirror follows."""
    return address_of("topic", mirror.source_cluster, mirror.source)


def check_own_records(links: LinksByJobs, here: MirrorSeen) -> None:
    """Return if a mirror has no records of other producers: its source would never get those.

    Raises:
        UserError: It has some; names them.
    """
    found = links.foreign([here.name]).get(here.name, ())
    if found:
        where = first_few([str(each) for each in found], _NAMED, grouping="")
        message = f"mirror {here.name} cannot be reversed: another producer wrote records to it ({where})"
        hint = "To keep them, fail it over and restore its source. To drop them, delete the mirror, and mirror afresh."
        raise UserError(message, hint=hint)


def check_source(providers: Mapping[str, Provider], here: MirrorSeen) -> None:
    """Refuse what needs the source where it is not there, or is not what was copied.

    Raises:
        UserError: There is no such topic.
        SourceChangedError: It was deleted and created again.
        RetryableError: It does not answer.
    """
    found = provider_named(providers, here.source_cluster).source_topic(source_of(here))
    if here.source_topic_id not in {None, found.incarnation}:
        message = f"the source {here.source} of mirror {here.name} was deleted and created again"
        hint = "Fail over to keep what the mirror has, or delete it and make it again."
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)


def check_source_ends(providers: Mapping[str, Provider], here: MirrorSeen) -> None:
    """Refuse to reverse a mirror whose source is itself a mirror.

    Raises:
        UserError: So it is.
    """
    there = mirror_at(links_of(provider_named(providers, here.source_cluster)), here.source)
    if there is not None and there.status is not MirrorStatus.STOPPED:
        message = f"mirror {here.name} cannot be reversed: its source is itself a mirror ({there.status})"
        raise UserError(message, hint=f"Promote or fail over {here.source} of cluster {here.source_cluster} first.")


def check_shut(providers: Mapping[str, Provider], here: MirrorSeen) -> None:
    """Refuse to open a mirror whose source was rescued meanwhile: both would take records.

    Raises:
        UserError: The source is not a part of that reversal any more.
    """
    there = links_of(provider_named(providers, here.source_cluster)).mirror(here.source)
    if there.operation is None or here.operation is None or there.operation.id != here.operation.id:
        raise broken_off(here, there)


def ended(here: MirrorSeen, verbs: Collection[str]) -> MirrorSeen:
    """Return a mirror, unless it ended otherwise than was asked.

    Raises:
        UserError: Somebody failed it over meanwhile.
    """
    if here.status is MirrorStatus.STOPPED and here.stopped_by not in verbs:
        message = f"mirror {here.name} of cluster {here.cluster} was stopped meanwhile, by {here.stopped_by}"
        raise UserError(message, hint="It takes records; what it has is what it had by then.")
    return here


def _from_another(here: MirrorSeen, asked: MirrorTopic) -> UserError:
    """Return what is said where a restore from one mirror is asked for, and one from another is under way."""
    address = address_of("mirror", here.cluster, here.name)
    return UserError(
        f"{address} cannot be restored from {asked.source} of cluster {asked.source_cluster}: "
        f"a restore from {here.source} of cluster {here.source_cluster} is under way",
        hint="To end that one: reconciler run --once --only mirror. To give it up: "
        f"reconciler mirror failover {address}",
    )


def broken_off(here: MirrorSeen, peer: MirrorSeen) -> UserError:
    """Return what is said of a reversal of which the other side was failed over."""
    message = f"the reversal was broken off: {peer.name} of cluster {peer.cluster} is {peer.status}"
    address = address_of("mirror", here.cluster, here.name)
    return UserError(message, hint=f"Let {here.name} take records again with: reconciler mirror failover {address}")


# Transitions of mirrors over two clusters: the first step that is not done, again and again, until all are.
#
# Every step is durable on its own cluster before the next, so it does not matter who takes it: a run that was killed is
# gone on with by the next one, and of two at once one finds that the other was faster. Both sides are never writable.


_M = MirrorStatus


class TakenBackError(UserError):
    """A reversal could not begin, and its mirror goes on as before."""


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
                self._check_sides(f"mirror {full_name} cannot be reversed", here)
                check_source_ends(self.providers, here)
                check_source(self.providers, here)
                # Most is copied while producers go on; and where nothing can be copied, nobody is shut out for it.
                self.may_go_on()
                self.copy(here, None)
                check_own_records(links, here)
            links.ask(full_name, verb, operation=self.new_id(), may_go_on=self.may_go_on)
        after = ended(self.drive(cluster, full_name), REVERSALS)
        if after.status is _M.ACTIVE:  # Another process took it back.
            address = address_of("mirror", cluster, full_name)
            message = f"mirror {full_name} of cluster {cluster} was not reversed, and mirrors its source as before"
            raise UserError(message, hint=f"Ask again: reconciler mirror reverse {address}")
        return ended(self._links(here.source_cluster).mirror(here.source), REVERSALS)

    def restore(
        self,
        cluster: str,
        full_name: str,
        diverged: WithDiverged = "refuse",
        *,
        asked: MirrorTopic | None = None,
        approved: tuple[Stretch, ...] | None = None,
    ) -> tuple[MirrorSeen, Mapping[int, Truncated]]:
        """Let the original source of a stopped mirror become its mirror; what was written here since is cut off.

        Return the mirror, and what was cut off each partition. `diverged`: what becomes of records that only this topic
        has, where no platform simply cuts them off. `asked`: what it shall be, so that its link says from which mirror
        it is restored. `approved`: what may be cut off at most.

        Raises:
            UserError: Nothing that is stopped was a mirror of it, several were, or the link is not bidirectional.
            StalePlanError: More would be cut off than was approved.
            RetryableError: The other cluster does not answer.
        """
        here = mirror_at(self._links(cluster), full_name)
        begun = None if here is None or here.operation is None else here.operation
        peer = self._restored_from(cluster, full_name, here, asked)
        operation = begun.id if begun is not None and begun.verb == RESTORE else self.new_id()
        if begun is None:
            self._check_sides(f"topic {full_name} of cluster {cluster} cannot be restored", peer)
            self._check_approved(cluster, full_name, peer, approved)
        asked_for = Operation(operation, RESTORE, diverged=diverged, approved=approved)
        self._links(cluster).join(full_name, peer, asked_for, may_go_on=self.may_go_on)
        cut: dict[int, Truncated] = {}
        return ended(self.drive(cluster, full_name, cut), {RESTORE}), cut

    def restorable(self, cluster: str, full_name: str, link: str | None = None) -> MirrorSeen:
        """Return the stopped mirror whose original source a topic is: over `link`, or the only one there is.

        Raises:
            UserError: There is none that could be restored from, or several; says what is missing.
        """
        return stopped_mirrors(self.providers, cluster, full_name, None if link is None else {link}).only()

    def _restored_from(
        self, cluster: str, full_name: str, here: MirrorSeen | None, asked: MirrorTopic | None
    ) -> MirrorSeen:
        """Return the mirror that a topic is restored from: that of a restore under way, or the one asked for."""
        if here is not None and _is_begun(here, {RESTORE}):
            if asked is not None and (here.link, here.source_cluster) != (asked.link, asked.source_cluster):
                raise _from_another(here, asked)
            peer = self._peer(here)
            check_restorable(self.providers, cluster, full_name, peer)
            return peer
        peer = self.restorable(cluster, full_name, None if asked is None else asked.link)
        if asked is not None and peer.cluster != asked.source_cluster:
            message = (
                f"link {peer.link} of cluster {cluster} leads to {peer.cluster} now, not to {asked.source_cluster}"
            )
            raise StalePlanError(f"{message}; nothing was changed", hint="Plan again.")
        return peer

    def _check_approved(
        self, cluster: str, full_name: str, peer: MirrorSeen, approved: Sequence[Stretch] | None
    ) -> dict[int, int]:
        """Return where a topic is to be cut, if no more than was approved goes with that."""
        links = self._links(cluster)
        at = self.cuts(cluster, full_name, peer)
        if approved is not None and links.diverged(full_name, {}) is None:  # Else the platform cuts nothing by itself.
            lost = cut_off(links.positions(full_name), at)
            check_approved((cluster, full_name), (peer.cluster, peer.link), lost, approved)
        return at

    def cuts(self, cluster: str, full_name: str, peer: MirrorSeen) -> dict[int, int]:
        """Return where each partition of an original source is to be cut: where it and its mirror agree last."""
        return cuts(self.providers, cluster, full_name, peer)

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
            except (TakenBackError, StalePlanError):
                raise  # What was begun was taken back.
            except ReconcilerError as error:
                now = mirror_at(links, full_name)
                if now is None:
                    raise  # It was left as it was before.
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

    def _step(self, links: LinksByJobs, here: MirrorSeen, cut: dict[int, Truncated]) -> MirrorSeen:
        operation = here.operation
        if operation is None:
            return here  # Nothing says what it waits for.
        match here.status:
            case _M.PENDING_STOPPED if here.stopped_by is not None:  # Its end is decided: it is being opened.
                return self._advance(links, here, _M.STOPPED)
            case _M.PENDING_STOPPED if operation.verb == PROMOTE:
                return self._promote(links, here, operation)
            case _M.PENDING_SYNCHRONIZE:
                return self._synchronize(links, here, operation)
            case _M.PENDING_STOPPED:
                self.sync(here)
                check_shut(self.providers, here)
                self._look_again(links, here, operation)
                return self._advance(links, here, _M.STOPPED)
            case _M.PENDING_MIRROR:
                return self._become_mirror(links, here, operation)
            case _M.PENDING_SETUP_FOR_RESTORE:
                return self._set_up(links, here, operation)
            case _M.PENDING_RESTORE:
                return self._restore(links, here, operation, cut)
            case _:
                return here

    def _promote(self, links: LinksByJobs, here: MirrorSeen, operation: Operation) -> MirrorSeen:
        ends = self._ends(here)  # Those of now: a promotion that was killed may have stood still since it aimed.
        here = links.aim(here.name, operation=operation.id, ends=ends)
        self._copy_all(links, here, ends)
        self.sync(here)
        return self._advance(links, here, _M.STOPPED)

    def _synchronize(self, links: LinksByJobs, here: MirrorSeen, operation: Operation) -> MirrorSeen:
        """Shut the source, which becomes a mirror, copy the rest, then shut the mirror, and look what is in it."""
        try:
            self._shut_source(here, operation)
        except UserError as error:
            self._take_back(links, here, operation, error)
            raise
        ends = self._ends(here)
        here = links.aim(here.name, operation=operation.id, ends=ends)
        self._copy_all(links, here, ends)
        self.sync(here)  # A mirror that is shut takes no configs that shut it.
        links.shut(here.name, operation=operation.id, may_go_on=self.may_go_on)
        try:
            check_own_records(links, here)
        except UserError as error:
            self._open_source(here)
            self._mirror_again(links, here, is_given_up=True)
            raise TakenBackError(f"{error.message}; it mirrors its source as before", hint=error.hint) from error
        return self._advance(links, here, _M.PENDING_STOPPED)

    def _shut_source(self, here: MirrorSeen, operation: Operation) -> None:
        there = self._links(here.source_cluster)
        there.join(here.source, here, Operation(operation.id, operation.verb), may_go_on=self.may_go_on)

    def _open_source(self, here: MirrorSeen) -> None:
        there = self._links(here.source_cluster)
        there.ask(here.source, FAILOVER, operation=self.new_id(), may_go_on=self.may_go_on)

    def _look_again(self, links: LinksByJobs, here: MirrorSeen, operation: Operation) -> None:
        """Refuse to swap roles where one of the sides got records since the rest was copied.

        Raises:
            UserError: The mirror got some.
            ReconcilerError: The source got some: what is shut takes no copy of them.
        """
        self._shut_source(here, operation)
        self._copy_all(links, here, self._ends(here))  # Transactions may have ended there since.
        links.shut(here.name, operation=operation.id, may_go_on=self.may_go_on)
        check_own_records(links, here)

    def _take_back(self, links: LinksByJobs, here: MirrorSeen, operation: Operation, error: UserError) -> None:
        """Resume a mirror whose reversal cannot continue: its source mirrors another topic, or was failed over.

        Without that, it would be reversed much later: as soon as its source takes records again.

        Raises:
            TakenBackError: That was done.
        """
        there = mirror_at(self._links(here.source_cluster), here.source)
        if there is None or (there.operation is not None and there.operation.id == operation.id):
            return
        is_failed_over, is_stopped = there.stopped_by == FAILOVER, there.status is _M.STOPPED
        if is_stopped and not is_failed_over:
            return
        if is_failed_over and not is_stopped:
            self._open_source(here)  # Its failover was killed before it was open.
        self._mirror_again(links, here, is_given_up=operation.ends is not None)
        message = f"mirror {here.name} of cluster {here.cluster} was not reversed, and mirrors its source as before"
        if is_failed_over:
            raise TakenBackError(f"{message}, which takes records: {error.message}", hint=error.hint) from error
        raise TakenBackError(
            f"{message}: its source is itself a mirror of {there.source} of cluster {there.source_cluster} "
            f"({there.status})",
            hint="Only one of the mirrors of a source can be reversed.",
        ) from error

    def _mirror_again(self, links: LinksByJobs, here: MirrorSeen, *, is_given_up: bool) -> None:
        operation = "" if here.operation is None else here.operation.id
        links.advance(here.name, _M.ACTIVE, operation=operation, is_given_up=is_given_up, may_go_on=self.may_go_on)

    def _become_mirror(self, links: LinksByJobs, here: MirrorSeen, operation: Operation) -> MirrorSeen:
        """Go on where the old mirror has stopped; until then the old mirror is what is driven."""
        peer = self._peer(here)
        if peer.operation is not None and peer.operation.id == operation.id:
            if peer.status not in UNDER_WAY:
                return here  # Suspended: whoever paused it resumes it, or fails it over.
            self.drive(here.source_cluster, here.source)
            return links.mirror(here.name)
        if peer.status is not _M.STOPPED or peer.stopped_by not in REVERSALS:
            raise broken_off(here, peer)
        maps = self._links(here.source_cluster).offset_maps(here.source)
        links.stand(here.name, peer.topic_id, self._bounds(here), operation=operation.id, maps=maps)
        return self._advance(links, here, _M.PAUSED if operation.verb == "reverse-and-pause" else _M.ACTIVE)

    def _set_up(self, links: LinksByJobs, here: MirrorSeen, operation: Operation) -> MirrorSeen:
        peer = self._peer(here)
        check_restorable(self.providers, here.cluster, here.name, peer)
        links.join(here.name, peer, operation, may_go_on=self.may_go_on)  # All is sealed.
        try:
            ends = self._check_approved(here.cluster, here.name, peer, operation.approved)
        except StalePlanError:  # Producers wrote until it was sealed: they may go on, as if nothing had been begun.
            links.ask(here.name, FAILOVER, operation=self.new_id(), may_go_on=self.may_go_on)
            raise
        here = links.aim(here.name, operation=operation.id, ends=ends)
        return self._advance(links, here, _M.PENDING_RESTORE)

    def _restore(
        self, links: LinksByJobs, here: MirrorSeen, operation: Operation, cut: dict[int, Truncated]
    ) -> MirrorSeen:
        # Sealed once more: who let producers in, and comes late, may have done that since.
        links.join(here.name, self._peer(here), operation, may_go_on=self.may_go_on)
        cut |= links.truncate(here.name, operation=operation.id, may_go_on=self.may_go_on)
        source = here.source_topic_id or ""
        maps = self._links(here.source_cluster).offset_maps(here.source)
        if maps is not None:  # Groups are brought by what it knows then of offsets.
            links.stand(here.name, source, self._bounds(here), operation=operation.id, maps=maps)
        self.sync(here)
        if maps is None:
            links.stand(here.name, source, self._bounds(here), operation=operation.id)
        return self._advance(links, here, _M.ACTIVE)

    def _go_on_there(self, here: MirrorSeen) -> None:
        """Let the old source of a reversal become the mirror, where it waits for that."""
        there = mirror_at(self._links(here.source_cluster), here.source)
        if there is not None and there.status is _M.PENDING_MIRROR and there.source == here.name:
            self.drive(here.source_cluster, here.source)

    def _ends(self, here: MirrorSeen) -> dict[int, int]:
        return {partition: bound.end for partition, bound in self._bounds(here).items()}

    def _copy_all(self, links: LinksByJobs, here: MirrorSeen, ends: Mapping[int, int]) -> None:
        self.copy(here, ends)
        reached = links.positions(here.name)
        have = {part: reached[part].end if part in reached else 0 for part in ends}  # A broker may not show it yet.
        behind = {part: end - have[part] for part, end in ends.items() if have[part] < end}
        if behind:
            part, lag = next(iter(sorted(behind.items())))
            message = f"partition {part} of mirror {here.name} lacks {lag:,} records of its source"
            hint = "A transaction is open there: it goes on once that has ended. `mirror failover` does not wait."
            raise IncompleteError(message, hint=hint)

    def _advance(self, links: LinksByJobs, here: MirrorSeen, to: MirrorStatus) -> MirrorSeen:
        operation = "" if here.operation is None else here.operation.id
        return links.advance(here.name, to, operation=operation, may_go_on=self.may_go_on)

    def _check_sides(self, what: str, mirror: MirrorSeen) -> None:
        """Refuse to let a mirror and its source change roles over a link that cannot, before anything begins."""

        def side(cluster: str) -> tuple[str, MirrorLinkSpec | None]:
            links = self._links(cluster).links()
            return cluster, next((link.declared.spec for link in links if link.name == mirror.link), None)

        refused = check_sides(what, mirror.link, side(mirror.cluster), side(mirror.source_cluster))
        if refused is not None:
            raise UserError(refused.message, hint=refused.hint)

    def _peer(self, here: MirrorSeen) -> MirrorSeen:
        return self._links(here.source_cluster).mirror(here.source)

    def _provider(self, cluster: str) -> Provider:
        return provider_named(self.providers, cluster)

    def _links(self, cluster: str) -> LinksByJobs:
        return links_by_jobs(self._provider(cluster))

    def _bounds(self, mirror: MirrorSeen) -> Mapping[int, Bounds]:
        """Return where the partitions of a mirror's source begin and end now."""
        return self._provider(mirror.source_cluster).log(source_of(mirror)).bounds()

    def _note(self, links: LinksByJobs, here: MirrorSeen, error: ReconcilerError) -> None:
        """Keep why a transition does not end where `mirror errors` finds it; what it ends with is told anyway.

        Who was asked to stop, or has lost the lease, keeps nothing: that says nothing of the mirror.
        """
        try:
            self.may_go_on()
        except ReconcilerError:
            return
        code = getattr(error, "code", None) or _CODES.get(type(error).__name__, "INTERNAL_ERROR")
        operation = None if here.operation is None else here.operation.id
        links.trouble(here.name, Trouble(code, error.message), operation=operation)


_CODES: Final = {
    "NotAuthorizedError": "AUTHORIZATION_ERROR",
    "RetryableError": "REMOTE_LINK_NOT_FOUND_ERROR",
    "IncompleteError": "INTERNAL_ERROR",
    "UserError": "INVALID_REQUEST_ERROR",
    "NotFoundError": "INVALID_REQUEST_ERROR",
    "InvalidNamespaceError": "INVALID_TOPIC",
}


def _is_begun(here: MirrorSeen, verbs: Collection[str]) -> bool:
    return here.operation is not None and here.operation.verb in verbs and here.status in UNDER_WAY


def _place(here: MirrorSeen) -> tuple[MirrorStatus, str | None]:
    """Return how far a mirror is in which operation."""
    return here.status, None if here.operation is None else here.operation.id


Verb = Literal["promote", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"]


def drive(driver: Driver, action: Transition) -> MirrorSeen:
    """Drive what an action asks for, begun before or not, and return the mirror at its address.

    Raises:
        IncompleteError: It is under way, and cannot go on now; whoever comes next goes on.
        UserError: That is not legal in its state.
        RetryableError: One of the clusters does not answer.
    """
    cluster, name = cluster_of(action.address) or "", full_name_of(action.address)
    verb = cast("Verb", action.verb)
    match verb:
        case "promote":
            if not _is_over(driver, cluster, name, verb):
                driver.promote(cluster, name)
        case "reverse-and-start" | "reverse-and-pause":
            if not _is_over(driver, cluster, name, verb):
                _check_ended(driver.reverse(cluster, name, is_paused=verb == "reverse-and-pause"))
            driver.drive(cluster, name)
        case "truncate-and-restore":
            diverged = cast("WithDiverged", action.parameters.get("diverged", "refuse"))
            asked, cost = action.after, action.estimate.role
            restored, _ = driver.restore(
                cluster,
                name,
                diverged,
                asked=asked if isinstance(asked, MirrorTopic) else None,
                approved=None if cost is None or cost.unknown is not None else cost.lost,
            )
            _check_ended(restored)
        case _:
            assert_never(verb)
    found = links_of(driver.providers[cluster]).mirror(name)
    _check_ended(found)
    return found


def _is_over(driver: Driver, cluster: str, name: str, verb: str) -> bool:
    """Tell whether it was done already: the answer was lost, or another run was faster."""
    found = links_of(driver.providers[cluster]).mirror(name)
    return found.status is MirrorStatus.STOPPED and found.stopped_by == verb


def _check_ended(found: MirrorSeen) -> None:
    if found.status in UNDER_WAY:
        address = address_of("mirror", found.cluster, found.name)
        why = "" if found.trouble is None else f": {found.trouble.message}"
        raise IncompleteError(
            f"{address} is {found.status}, and does not go on{why}",
            hint="Continue it: reconciler run --once --only mirror. "
            f"Where it stands: reconciler mirror describe {address}",
        )


# Transitions that were stopped half-way: which side takes records meanwhile, what goes on with it, what opens it.


_GOES_ON: Final = "Go on with: reconciler run --once --only mirror"


def halted(providers: Mapping[str, Provider], address: Address) -> IncompleteError | None:
    """Return what is said of a mirror whose transition was stopped; `None`: it was not begun, or has ended.

    `None` too where a cluster does not answer, or drives its mirrors itself.
    """
    try:
        links = links_of(providers[cluster_of(address) or ""]).by_jobs
        here = None if links is None else mirror_at(links, full_name_of(address))
        there = None if here is None else mirror_at(links_of(providers[here.source_cluster]), here.source)
    except ReconcilerError:
        return None
    if here is None:
        return None
    peer = address_of("mirror", here.source_cluster, here.source)
    is_joined = there is not None and there.status is MirrorStatus.PENDING_MIRROR
    if here.status in UNDER_WAY:
        said, opens = _under_way(address, here, peer if is_joined else None)
        message = f"stopped half-way: {said}"
    elif here.status is MirrorStatus.STOPPED and here.stopped_by in REVERSALS and is_joined:
        message = f"stopped half-way: {address} takes records, and {peer} is PENDING_MIRROR: it does not follow it yet"
        opens = ""
    else:
        return None
    return IncompleteError(message, hint=f"{_GOES_ON}. {opens}" if opens else _GOES_ON)


def _under_way(address: Address, here: MirrorSeen, shut: Address | None) -> tuple[str, str]:
    """Return which side takes no records, and what lets one of them take some as it is."""
    verb = "" if here.operation is None else here.operation.verb
    if verb == PROMOTE:
        return f"{address} is {here.status}: it takes no records yet", _opens(address)
    if verb == RESTORE:
        other = f"its mirror on {here.source_cluster} goes on taking them"
        return f"{address} is {here.status} and takes no records; {other}", _opens(address)
    if shut is None:
        return f"{address} is {here.status}; its source still takes records, until it is gone on with", _opens(address)
    return f"{address} is {here.status} and {shut} PENDING_MIRROR: neither takes records", _opens(shut)


def _opens(address: Address) -> str:
    return f"To give it up, and take records there as it is: reconciler mirror failover {address}"


def halted_of(
    providers: Mapping[str, Provider], actions: Iterable[Action], left: Collection[str]
) -> tuple[IncompleteError, ...]:
    """Return what is said of the transitions among what a stopped run has left, where they were begun."""
    asked = (one for one in actions if isinstance(one, Transition) and one.verb in TWO_SIDED and one.id in left)
    return tuple(found for one in asked if (found := halted(providers, one.address)) is not None)


# Waiting until a mirror has all its source has, before it is promoted: it is copied again and again until then.
#
# A promotion has no way back, so this changes no state: where the lag does not shrink, the mirror is what it was.


_NAMED: Final = 5
_PAUSE_S: Final = 1.0
"""Between two looks at a source that goes on, or in which a transaction is open."""
SAME_AGAIN: Final = "Give the same command again; an apply: --resume"
"""What goes on after a stop: only the run of an apply can be resumed."""
_SLICE_S: Final = 0.1
"""A pause is cut into pieces this long, so that a request to stop is heard: its handler may set no event."""


@dataclass(frozen=True, slots=True)
class Behind:
    """What one partition lacks: `lag` offsets; `stable` is where an open transaction keeps it, if one does."""

    partition: int
    lag: int
    stable: int | None = None

    def __str__(self) -> str:
        """Return it in words."""
        lacks = f"partition {self.partition} lacks {counted(self.lag, 'record', 'records', grouping='')}"
        return lacks if self.stable is None else f"{lacks}: a transaction is open there since offset {self.stable:,}"


@dataclass(frozen=True)
class CatchingUp:
    """Brings a mirror to lag 0. `copy` brings it to where its source ends at that moment."""

    providers: Mapping[str, Provider]
    copy: Callable[[MirrorSeen], None]
    is_stopped: Callable[[], bool]
    clock: Callable[[], float] = monotonic

    def run(self, cluster: str, full_name: str, timeout_ms: int | None = None) -> None:
        """Copy until nothing lags. `timeout_ms` bounds how long the lag may not shrink; by default as its link says.

        -1 is no bound.

        Raises:
            RetryableError: It does not shrink, or the source does not answer; nothing was changed but the records
                that were copied.
            IncompleteError: It was stopped.
        """
        links = links_of(self.providers[cluster])
        mirror = links.mirror(full_name)
        least: int | None = None
        shrunk_at = self.clock()
        while True:
            self._check_stop(full_name)
            self.copy(mirror)
            behind = self.behind(mirror)
            lag = sum(each.lag for each in behind)
            if not lag:
                return
            if least is None or lag < least:
                least, shrunk_at = lag, self.clock()
            patience_ms = self._patience_ms(mirror) if timeout_ms is None else timeout_ms
            if patience_ms != UNLIMITED and self.clock() - shrunk_at >= patience_ms / 1000:
                raise _does_not_shrink(mirror, behind, patience_ms / 1000)
            self._pause(full_name)

    def behind(self, mirror: MirrorSeen) -> list[Behind]:
        """Return the partitions that lag, as both sides are now."""
        source = address_of("topic", mirror.source_cluster, mirror.source)
        bounds = self.providers[mirror.source_cluster].log(source).bounds()
        own = links_of(self.providers[mirror.cluster]).positions(mirror.name)
        return [
            _behind(partition, found, own[partition].end if partition in own else 0)
            for partition, found in sorted(bounds.items())
            if partition not in own or own[partition].end < found.end
        ]

    def _patience_ms(self, mirror: MirrorSeen) -> int:
        links = links_of(self.providers[mirror.cluster]).links()
        return next(link.declared.spec.retry_timeout for link in links if link.name == mirror.link)

    def _pause(self, full_name: str) -> None:
        until = self.clock() + _PAUSE_S
        waiting = threading.Event()
        while self.clock() < until:
            self._check_stop(full_name)
            waiting.wait(_SLICE_S)

    def _check_stop(self, full_name: str) -> None:
        if self.is_stopped():
            raise IncompleteError(
                f"stopped before {full_name} had caught up: it was not promoted",
                hint=SAME_AGAIN,
            )


def _behind(partition: int, found: Bounds, end: int) -> Behind:
    return Behind(partition, found.end - end, found.stable if found.stable < found.end else None)


def _does_not_shrink(mirror: MirrorSeen, behind: list[Behind], patience_s: float) -> RetryableError:
    named = "; ".join(map(str, behind[:_NAMED]))
    more = f"; and {len(behind) - _NAMED:,} more" if behind[_NAMED:] else ""
    address = address_of("mirror", mirror.cluster, mirror.name)
    is_open = any(each.stable is not None for each in behind)
    stop = (
        "Let that transaction end" if is_open else f"Stop the producers of {mirror.source} on {mirror.source_cluster}"
    )
    return RetryableError(
        f"the lag of {address} does not shrink, for {patience_s:,.0f} s: {named}{more}; nothing was changed",
        hint=f"{stop}, then try again. A failover does not wait, and loses what is missing.",
    )
