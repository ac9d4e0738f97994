"""Promote, reverse and restore mirrors over two clusters."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from reconciler.lifecycles import MIRROR, TWO_SIDED_VERBS, MirrorStatus
from reconciler.operations.steps.link_sides import get_provider
from reconciler.planning.actions import Action, Transition
from reconciler.planning.checks.mirror_checks import find_role_swap
from reconciler.planning.resolve.mirror_sources import check_role_swap
from reconciler.providers.protocol import Provider, require_job_links, require_links
from reconciler.providers.protocol_links import Links, LinksByJobs, LinksByPlatform
from reconciler.resources.address import Address, address_of, cluster_of, full_name_of
from reconciler.resources.base import UNLIMITED
from reconciler.resources.measures import (
    Measure,
    UndeletableError,
    check_approved,
    find_agreed_ends,
    list_truncated_ranges,
)
from reconciler.resources.mirror_link import MirrorTopic, explain_fewer_partitions
from reconciler.resources.mirrors import (
    FAILOVER,
    NEVER_FETCHED,
    PROMOTE,
    RESTORE,
    REVERSALS,
    SOURCE_TOPIC_ID_CHANGED,
    DivergedPartition,
    ObservedLink,
    ObservedMirror,
    OffsetStretch,
    Operation,
    Position,
    Trouble,
    TruncatedPartition,
    WithDiverged,
)
from reconciler.runtime.dataclass import dataclass, field, replace
from reconciler.runtime.retry import skip_check
from reconciler.runtime.text import list_first, pluralize
from reconciler.runtime.threads import map_in_parallel

if TYPE_CHECKING:
    from reconciler.records.log import Bounds
    from reconciler.resources.measures import Measures
    from reconciler.resources.mirror_link import MirrorLinkSpec


def read_mirror(links: Links, full_name: str) -> ObservedMirror | None:
    """Return a mirror, even a stopped one, or `None`."""
    return next(iter(links.list_mirrors(name=full_name)), None)


@dataclass(frozen=True, slots=True)
class StoppedMirrors:
    """Stopped mirrors from which a topic may be restored."""

    providers: Mapping[str, Provider]
    cluster: str
    full_name: str
    mirrors: tuple[ObservedMirror, ...]
    unanswered: tuple[ReconcilerError, ...] = ()
    links: tuple[str, ...] = ()

    def get_only_mirror(self) -> ObservedMirror:
        """Return the only mirror that passes `check_restorable`. Raises `UserError` if none or several do."""
        if not self.mirrors:
            for error in self.unanswered:
                raise error
            by_link = f" over link {list_first(self.links, _NAMED, grouping='')}" if self.links else ""
            what = f"topic {self.full_name} of cluster {self.cluster} cannot be restored"
            message = f"{what}: no stopped mirror of it is known{by_link}"
            hint = "Restore works on the original source of a stopped mirror, over a bidirectional link."
            raise UserError(message, hint=hint)
        refused: list[UserError] = []
        fitting: list[ObservedMirror] = []
        for peer in self.mirrors:
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
                raise self._ambiguous_error(fitting)

    def _ambiguous_error(self, fitting: Sequence[ObservedMirror]) -> UserError:
        named = [str(address_of("mirror", mirror.cluster, mirror.name)) for mirror in fitting]
        links = [str(address_of("link", mirror.cluster, mirror.link)) for mirror in fitting]
        message = (
            f"topic {self.full_name} of cluster {self.cluster} can be restored from each of "
            f"{len(named)} stopped mirrors: {list_first(named, _NAMED, grouping='')}"
        )
        address = address_of("mirror", self.cluster, self.full_name)
        others = list_first(links[1:], _NAMED, grouping="")
        hint = f"Choose one by its link: reconciler mirror restore {address} --link {links[0]}. The others: {others}."
        return UserError(message, hint=hint)


def find_stopped_mirrors(
    providers: Mapping[str, Provider], cluster: str, full_name: str, link_names: Collection[str] | None = None
) -> StoppedMirrors:
    """Return stopped mirrors from which a topic may be restored, limited to `link_names`."""
    links = require_links(get_provider(providers, cluster)).list_links()
    linked = [
        link
        for link in links
        if link.declared.spec.source in providers and (link_names is None or link.name in link_names)
    ]
    both_ways = [link for link in linked if can_swap_roles(link)]

    def read_mirrors(link: ObservedLink) -> Sequence[ObservedMirror] | ReconcilerError:
        try:
            source_mirrors = require_links(providers[link.declared.spec.source]).list_mirrors(
                link.name, source=full_name
            )
        except ReconcilerError as error:
            return error
        return [
            mirror
            for mirror in source_mirrors
            if (mirror.source, mirror.source_cluster) == (full_name, cluster) and mirror.status is MirrorStatus.STOPPED
        ]

    def read_over_links(links: Sequence[ObservedLink]) -> tuple[list[ObservedMirror], list[ReconcilerError]]:
        answers = list(map_in_parallel(read_mirrors, links, name="restore"))
        mirrors_there = [mirror for answer in answers if not isinstance(answer, ReconcilerError) for mirror in answer]
        return mirrors_there, [answer for answer in answers if isinstance(answer, ReconcilerError)]

    mirrors, unanswered = read_over_links(both_ways)
    if not mirrors and not unanswered:
        mirrors, _ = read_over_links([link for link in linked if not can_swap_roles(link)])
    return StoppedMirrors(
        providers, cluster, full_name, tuple(mirrors), tuple(unanswered), tuple(sorted(link_names or ()))
    )


def can_swap_roles(link: ObservedLink) -> bool:
    """Return whether mirrors can swap roles over a link."""
    spec = link.declared.spec
    return spec.mode == "bidirectional" and not spec.prefix


def check_restorable(providers: Mapping[str, Provider], cluster: str, full_name: str, peer: ObservedMirror) -> None:
    """Reject a mirror that is not stopped, or whose source was an earlier topic."""
    provider = get_provider(providers, cluster)
    topic = provider.read_source_topic(address_of("topic", cluster, full_name))
    what = f"topic {full_name} of cluster {cluster} cannot be restored from {peer.name} of cluster {peer.cluster}"
    if peer.status is not MirrorStatus.STOPPED:
        raise UserError(
            f"{what}: that is {peer.status}, and accepts no records itself",
            hint="To let this one take records again: reconciler mirror failover "
            f"{address_of('mirror', cluster, full_name)}",
        )
    if peer.source_topic_id not in {None, topic.incarnation}:
        raise UserError(
            f"{what}: it was deleted and created again (SOURCE_TOPIC_ID_CHANGED)",
            hint="Delete it here, and mirror it again.",
        )
    if peer.partitions < topic.partitions:
        raise UserError(
            explain_fewer_partitions(
                (cluster, full_name), topic.partitions, (peer.cluster, peer.name), peer.partitions
            ),
            hint=f"Declare {address_of('topic', peer.cluster, peer.name)} with `partitions: {topic.partitions}`, "
            "and apply that first.",
        )
    own = read_mirror(require_links(provider), full_name)
    is_of_each_other = own is not None and (own.source_cluster, own.source) == (peer.cluster, peer.name)
    is_last = own is not None and own.status is MirrorStatus.STOPPED and own.since_ms > peer.since_ms
    if own is not None and is_of_each_other and is_last and not _was_never_copied(provider, own):
        message = f"{what}: it stopped after the other mirror, which is the original source"
        raise UserError(message, hint=f"Restore {peer.name} of cluster {peer.cluster} from it.")


def _was_never_copied(provider: Provider, own: ObservedMirror) -> bool:
    positions = require_links(provider).read_positions(own.name).values()
    return own.is_untouched or all(at.is_renumbered and at.fetched == NEVER_FETCHED for at in positions)


def find_truncation_offsets(
    providers: Mapping[str, Provider], cluster: str, full_name: str, peer: ObservedMirror
) -> dict[int, int]:
    """Return the offset per partition up to which both logs are equal."""
    provider, topic = get_provider(providers, cluster), address_of("topic", cluster, full_name)
    topic_id = provider.read_source_topic(topic).incarnation
    other = get_provider(providers, peer.cluster)
    theirs, maps = require_links(other).read_positions(peer.name), require_job_links(other).read_offset_maps(peer.name)
    if maps is None:
        return find_agreed_ends(require_links(provider).read_positions(full_name), topic_id, theirs, peer.topic_id)
    from reconciler.jobs.ordered import find_agreed_ends_by_map  # noqa: PLC0415 - imports Arrow

    logs = provider.open_log(topic), other.open_log(address_of("topic", peer.cluster, peer.name))
    bounds = logs[0].read_bounds(), logs[1].read_bounds()
    own = {number: Position(at.start, at.end, at.epochs, is_renumbered=True) for number, at in bounds[0].items()}
    ends = find_agreed_ends(own, topic_id, theirs, peer.topic_id)
    for foreign_range in require_job_links(other).find_foreign_records([peer.name], is_stopped=True).get(peer.name, ()):
        if foreign_range.partition in ends:
            ends[foreign_range.partition] = min(
                ends[foreign_range.partition], maps[foreign_range.partition].find_source(foreign_range.start)
            )
    return {**ends, **find_agreed_ends_by_map(logs, bounds, maps, {number: at for number, at in ends.items() if at})}


def add_swap_costs(providers: Mapping[str, Provider], actions: Sequence[Action], measures: Measures) -> Measures:
    """Add what restores and reversals cost, and why platforms refuse them. Incomparable topics become unmeasured."""
    swaps = [(action, mirror) for action in actions if (mirror := find_role_swap(action)) is not None]
    restored = [mirror for action, mirror in swaps if action.verb == RESTORE]

    def find_diverged(mirror: MirrorTopic) -> Sequence[DivergedPartition] | ReconcilerError | None:
        links = require_links(providers[mirror.cluster]).job_steps
        try:
            if links is None or links.find_diverged_records(mirror.name, {}) is None:
                return None
            peer = require_links(get_provider(providers, mirror.source_cluster)).read_mirror(mirror.source)
            return links.find_diverged_records(
                mirror.name, find_truncation_offsets(providers, mirror.cluster, mirror.name, peer)
            )
        except ReconcilerError as error:
            return error

    result = dict(measures)
    for mirror, seen in zip(restored, map_in_parallel(find_diverged, restored, name="compare"), strict=True):
        topic = address_of("topic", mirror.cluster, mirror.name)
        if isinstance(seen, UndeletableError) and topic in result:
            result[topic] = replace(result[topic], refusal=seen)
        elif isinstance(seen, ReconcilerError):
            result.pop(topic, None)
        elif seen is not None and topic in result:
            result[topic] = replace(result[topic], diverged=tuple(seen))
    return {**result, **_preview_swaps(providers, swaps, Counter(action.address for action in actions), result)}


def _preview_swaps(
    providers: Mapping[str, Provider],
    swaps: Sequence[tuple[Action, MirrorTopic]],
    planned: Mapping[Address, int],
    measures: Measures,
) -> Measures:
    """Ask platforms that swap roles themselves, except about mirrors and links that the plan changes before.

    `planned` is the number of actions by address.
    """
    calls: dict[tuple[str, str, str], list[str]] = {}
    for action, mirror in swaps:
        halves = (address_of("link", side, mirror.link) for side in (mirror.cluster, mirror.source_cluster))
        is_first = planned[action.address] == 1 and not any(half in planned for half in halves)
        if is_first and require_links(providers[mirror.cluster]).job_steps is None:
            calls.setdefault((mirror.cluster, action.verb, mirror.link), []).append(mirror.name)
    seen: dict[Address, Measure] = {}
    for (cluster, verb, link), names in calls.items():
        links = cast("LinksByPlatform", require_links(providers[cluster]))
        for name, preview in links.preview_verb(verb, link, names).items():
            topic = address_of("topic", cluster, name)
            measure = measures.get(topic, Measure(0, 0))
            if isinstance(preview, UserError):
                seen[topic] = replace(measure, refusal=preview)
            elif not isinstance(preview, ReconcilerError):
                seen[topic] = replace(measure, truncated=tuple(preview))
    return seen


def get_source_address(mirror: ObservedMirror) -> Address:
    """Return the address of a mirror's source."""
    return address_of("topic", mirror.source_cluster, mirror.source)


def check_no_foreign_records(links: LinksByJobs, mirror: ObservedMirror) -> None:
    """Reject a mirror with other producers' records, which the source would never receive."""
    foreign = links.find_foreign_records([mirror.name]).get(mirror.name, ())
    if foreign:
        where = list_first([str(foreign_range) for foreign_range in foreign], _NAMED, grouping="")
        message = f"mirror {mirror.name} cannot be reversed: another producer wrote records to it ({where})"
        hint = "To keep them, fail it over and restore its source. To drop them, delete the mirror, and mirror again."
        raise UserError(message, hint=hint)


def check_source(providers: Mapping[str, Provider], mirror: ObservedMirror) -> None:
    """Reject a source that is missing or was recreated."""
    topic = get_provider(providers, mirror.source_cluster).read_source_topic(get_source_address(mirror))
    if mirror.source_topic_id not in {None, topic.incarnation}:
        message = f"the source {mirror.source} of mirror {mirror.name} was deleted and created again"
        hint = "Fail over to keep what the mirror has, or delete it and create it again."
        raise SourceChangedError(message, code=SOURCE_TOPIC_ID_CHANGED, hint=hint)


def check_source_not_mirror(providers: Mapping[str, Provider], mirror: ObservedMirror) -> None:
    """Reject a reversal whose source is a mirror."""
    source_mirror = read_mirror(require_links(get_provider(providers, mirror.source_cluster)), mirror.source)
    if source_mirror is not None and source_mirror.status is not MirrorStatus.STOPPED:
        message = f"mirror {mirror.name} cannot be reversed: its source is itself a mirror ({source_mirror.status})"
        raise UserError(message, hint=f"Promote or fail over {mirror.source} of cluster {mirror.source_cluster} first.")


def check_source_closed(providers: Mapping[str, Provider], mirror: ObservedMirror) -> None:
    """Reject a swap after the source left the reversal, because both sides would accept records."""
    source_mirror = require_links(get_provider(providers, mirror.source_cluster)).read_mirror(mirror.source)
    if source_mirror.operation is None or mirror.operation is None or source_mirror.operation.id != mirror.operation.id:
        raise broken_reversal_error(mirror, source_mirror)


def check_stopping_verb(mirror: ObservedMirror, verbs: Collection[str]) -> ObservedMirror:
    """Return the mirror. Raises `UserError` if a verb outside `verbs` stopped it."""
    if mirror.status is MirrorStatus.STOPPED and mirror.stopped_by not in verbs:
        message = (
            f"mirror {mirror.name} of cluster {mirror.cluster} was stopped in the meantime, by {mirror.stopped_by}"
        )
        raise UserError(message, hint="It takes records; it has the records copied until then.")
    return mirror


def _other_restore_error(mirror: ObservedMirror, wanted: MirrorTopic) -> UserError:
    address = address_of("mirror", mirror.cluster, mirror.name)
    return UserError(
        f"{address} cannot be restored from {wanted.source} of cluster {wanted.source_cluster}: "
        f"a restore from {mirror.source} of cluster {mirror.source_cluster} is in progress",
        hint="To end that one: reconciler run --once --only mirror. To abandon it: reconciler mirror failover"
        f" {address}",
    )


def broken_reversal_error(mirror: ObservedMirror, peer: ObservedMirror) -> UserError:
    """Build the error for a reversal whose other mirror was failed over."""
    message = f"the reversal was interrupted: {peer.name} of cluster {peer.cluster} is {peer.status}"
    address = address_of("mirror", mirror.cluster, mirror.name)
    return UserError(message, hint=f"Let {mirror.name} take records again with: reconciler mirror failover {address}")


# Each step is stored on its cluster before the next. So any process can continue, and concurrent ones notice each
# other. Mirror and source are never writable at the same time.


_M = MirrorStatus


class ReversalAbandonedError(UserError):
    """A reversal was abandoned before the swap; the mirror is ACTIVE again."""


UNDER_WAY: Final = frozenset(
    {_M.PENDING_STOPPED, _M.PENDING_SYNCHRONIZE, _M.PENDING_MIRROR, _M.PENDING_SETUP_FOR_RESTORE, _M.PENDING_RESTORE}
)


@dataclass(frozen=True)
class TransitionDriver:
    """Drives transitions of mirrors, which can be repeated after any failure."""

    providers: Mapping[str, Provider]
    copy: Callable[[ObservedMirror, Mapping[int, int] | None], object]
    sync: Callable[[ObservedMirror], object]
    new_id: Callable[[], str]
    may_go_on: Callable[[], None] = field(default=skip_check)

    def promote(self, cluster: str, full_name: str) -> ObservedMirror:
        """Promote a mirror once it has all records of its source. Continues an earlier promotion."""
        links = self._get_links(cluster)
        mirror = links.read_mirror(full_name)
        if not _has_begun(mirror, {PROMOTE}):
            if PROMOTE in MIRROR.list_legal_verbs(mirror.status):
                check_source(self.providers, mirror)
            links.request_verb(full_name, PROMOTE, operation=self.new_id(), may_go_on=self.may_go_on)
        return check_stopping_verb(self.drive(cluster, full_name), {PROMOTE})

    def reverse(self, cluster: str, full_name: str, *, is_paused: bool = False) -> ObservedMirror:
        """Swap the roles of a mirror and its source without loss; return the new mirror, paused if `is_paused`."""
        verb = "reverse-and-pause" if is_paused else "reverse-and-start"
        links = self._get_links(cluster)
        mirror = links.read_mirror(full_name)
        if not _has_begun(mirror, REVERSALS):
            if verb in MIRROR.list_legal_verbs(mirror.status):
                self._check_sides(f"mirror {full_name} cannot be reversed", mirror)
                check_source_not_mirror(self.providers, mirror)
                check_source(self.providers, mirror)
                # Most records are copied before producers are stopped.
                self.may_go_on()
                self.copy(mirror, None)
                check_no_foreign_records(links, mirror)
            links.request_verb(full_name, verb, operation=self.new_id(), may_go_on=self.may_go_on)
        after = check_stopping_verb(self.drive(cluster, full_name), REVERSALS)
        if after.status is _M.ACTIVE:
            address = address_of("mirror", cluster, full_name)
            message = f"mirror {full_name} of cluster {cluster} was not reversed, and mirrors its source as before"
            raise UserError(message, hint=f"Run again: reconciler mirror reverse {address}")
        return check_stopping_verb(self._get_links(mirror.source_cluster).read_mirror(mirror.source), REVERSALS)

    def restore(
        self,
        cluster: str,
        full_name: str,
        diverged: WithDiverged = "refuse",
        *,
        wanted: MirrorTopic | None = None,
        approved: tuple[OffsetStretch, ...] | None = None,
    ) -> tuple[ObservedMirror, Mapping[int, TruncatedPartition]]:
        """Make the original source of a stopped mirror its mirror, and truncate diverged records.

        Return the mirror, and the truncation by partition. Only `approved` ranges are truncated; `None` allows all.

        Raises:
            StalePlanError: More would be truncated than approved.
        """
        current = read_mirror(self._get_links(cluster), full_name)
        begun = None if current is None or current.operation is None else current.operation
        peer = self._choose_peer(cluster, full_name, current, wanted)
        operation = begun.id if begun is not None and begun.verb == RESTORE else self.new_id()
        if begun is None:
            self._check_sides(f"topic {full_name} of cluster {cluster} cannot be restored", peer)
            self._check_approved(cluster, full_name, peer, approved)
        asked_for = Operation(operation, RESTORE, diverged=diverged, approved=approved)
        self._get_links(cluster).convert_to_mirror(full_name, peer, asked_for, may_go_on=self.may_go_on)
        cut: dict[int, TruncatedPartition] = {}
        return check_stopping_verb(self.drive(cluster, full_name, cut), {RESTORE}), cut

    def find_restorable(self, cluster: str, full_name: str, link: str | None = None) -> ObservedMirror:
        """Return the stopped mirror from which a topic can be restored, optionally limited to `link`."""
        return find_stopped_mirrors(
            self.providers, cluster, full_name, None if link is None else {link}
        ).get_only_mirror()

    def _choose_peer(
        self, cluster: str, full_name: str, current: ObservedMirror | None, wanted: MirrorTopic | None
    ) -> ObservedMirror:
        if current is not None and _has_begun(current, {RESTORE}):
            if wanted is not None and (current.link, current.source_cluster) != (wanted.link, wanted.source_cluster):
                raise _other_restore_error(current, wanted)
            peer = self._read_source_mirror(current)
            check_restorable(self.providers, cluster, full_name, peer)
            return peer
        peer = self.find_restorable(cluster, full_name, None if wanted is None else wanted.link)
        if wanted is not None and peer.cluster != wanted.source_cluster:
            message = (
                f"link {peer.link} of cluster {cluster} leads to {peer.cluster} now, not to {wanted.source_cluster}"
            )
            raise StalePlanError(f"{message}; nothing was changed", hint="Plan again.")
        return peer

    def _check_approved(
        self, cluster: str, full_name: str, peer: ObservedMirror, approved: Sequence[OffsetStretch] | None
    ) -> dict[int, int]:
        links = self._get_links(cluster)
        at = self.find_truncation_offsets(cluster, full_name, peer)
        # A platform that reports diverged records does not truncate them itself.
        if approved is not None and links.find_diverged_records(full_name, {}) is None:
            lost = list_truncated_ranges(links.read_positions(full_name), at)
            check_approved((cluster, full_name), (peer.cluster, peer.link), lost, approved)
        return at

    def find_truncation_offsets(self, cluster: str, full_name: str, peer: ObservedMirror) -> dict[int, int]:
        """Return the offset per partition at which to truncate an original source."""
        return find_truncation_offsets(self.providers, cluster, full_name, peer)

    def drive(self, cluster: str, full_name: str, cut: dict[int, TruncatedPartition] | None = None) -> ObservedMirror:
        """Run a transition to its end, and return the mirror. Errors are recorded there, then raised."""
        links = self._get_links(cluster)
        mirror = links.read_mirror(full_name)
        while mirror.status in UNDER_WAY:
            self.may_go_on()
            try:
                after = self._take_step(links, mirror, {} if cut is None else cut)
            except (ReversalAbandonedError, StalePlanError):
                raise
            except ReconcilerError as error:
                now = read_mirror(links, full_name)
                if now is None:
                    raise
                if _read_progress(now) == _read_progress(mirror):
                    self._record_trouble(links, mirror, error)
                    raise
                after = now
            if after.status is mirror.status and after.operation == mirror.operation:
                return after
            mirror = after
        if mirror.status is _M.STOPPED and mirror.stopped_by in REVERSALS:
            self._finish_source(mirror)
        return mirror

    def _take_step(
        self, links: LinksByJobs, mirror: ObservedMirror, cut: dict[int, TruncatedPartition]
    ) -> ObservedMirror:
        operation = mirror.operation
        if operation is None:
            return mirror
        match mirror.status:
            case _M.PENDING_STOPPED if mirror.stopped_by is not None:
                return self._set_status(links, mirror, _M.STOPPED)
            case _M.PENDING_STOPPED if operation.verb == PROMOTE:
                return self._run_promotion(links, mirror, operation)
            case _M.PENDING_SYNCHRONIZE:
                return self._run_synchronization(links, mirror, operation)
            case _M.PENDING_STOPPED:
                self.sync(mirror)
                check_source_closed(self.providers, mirror)
                self._recheck_sides(links, mirror, operation)
                return self._set_status(links, mirror, _M.STOPPED)
            case _M.PENDING_MIRROR:
                return self._finish_reversal(links, mirror, operation)
            case _M.PENDING_SETUP_FOR_RESTORE:
                return self._prepare_restore(links, mirror, operation)
            case _M.PENDING_RESTORE:
                return self._run_restore(links, mirror, operation, cut)
            case _:
                return mirror

    def _run_promotion(self, links: LinksByJobs, mirror: ObservedMirror, operation: Operation) -> ObservedMirror:
        # An interrupted promotion may have stored outdated ends.
        ends = self._read_source_ends(mirror)
        mirror = links.record_end_offsets(mirror.name, operation=operation.id, ends=ends)
        self._copy_all(links, mirror, ends)
        self.sync(mirror)
        return self._set_status(links, mirror, _M.STOPPED)

    def _run_synchronization(self, links: LinksByJobs, mirror: ObservedMirror, operation: Operation) -> ObservedMirror:
        try:
            self._close_source(mirror, operation)
        except UserError as error:
            self._abandon_reversal(links, mirror, operation, error)
            raise
        ends = self._read_source_ends(mirror)
        mirror = links.record_end_offsets(mirror.name, operation=operation.id, ends=ends)
        self._copy_all(links, mirror, ends)
        # Configs are synced now, because a closed mirror rejects them.
        self.sync(mirror)
        links.refuse_producers(mirror.name, operation=operation.id, may_go_on=self.may_go_on)
        try:
            check_no_foreign_records(links, mirror)
        except UserError as error:
            self._open_source(mirror)
            self._resume_mirror(links, mirror, is_given_up=True)
            raise ReversalAbandonedError(
                f"{error.message}; it mirrors its source as before", hint=error.hint
            ) from error
        return self._set_status(links, mirror, _M.PENDING_STOPPED)

    def _close_source(self, mirror: ObservedMirror, operation: Operation) -> None:
        source_links = self._get_links(mirror.source_cluster)
        source_links.convert_to_mirror(
            mirror.source, mirror, Operation(operation.id, operation.verb), may_go_on=self.may_go_on
        )

    def _open_source(self, mirror: ObservedMirror) -> None:
        source_links = self._get_links(mirror.source_cluster)
        source_links.request_verb(mirror.source, FAILOVER, operation=self.new_id(), may_go_on=self.may_go_on)

    def _recheck_sides(self, links: LinksByJobs, mirror: ObservedMirror, operation: Operation) -> None:
        """Reject the swap if mirror or source received records, which a closed mirror cannot copy."""
        self._close_source(mirror, operation)
        self._copy_all(links, mirror, self._read_source_ends(mirror))
        links.refuse_producers(mirror.name, operation=operation.id, may_go_on=self.may_go_on)
        check_no_foreign_records(links, mirror)

    def _abandon_reversal(
        self, links: LinksByJobs, mirror: ObservedMirror, operation: Operation, error: UserError
    ) -> None:
        source_mirror = read_mirror(self._get_links(mirror.source_cluster), mirror.source)
        if source_mirror is None or (
            source_mirror.operation is not None and source_mirror.operation.id == operation.id
        ):
            return
        is_failed_over, is_stopped = source_mirror.stopped_by == FAILOVER, source_mirror.status is _M.STOPPED
        if is_stopped and not is_failed_over:
            return
        if is_failed_over and not is_stopped:
            self._open_source(mirror)
        # If the source's failover was interrupted, the source stays closed.
        self._resume_mirror(links, mirror, is_given_up=operation.ends is not None)
        message = f"mirror {mirror.name} of cluster {mirror.cluster} was not reversed, and mirrors its source as before"
        if is_failed_over:
            raise ReversalAbandonedError(f"{message}, which takes records: {error.message}", hint=error.hint) from error
        raise ReversalAbandonedError(
            f"{message}: its source is itself a mirror of {source_mirror.source} of cluster "
            f"{source_mirror.source_cluster} "
            f"({source_mirror.status})",
            hint="Only one of the mirrors of a source can be reversed.",
        ) from error

    def _resume_mirror(self, links: LinksByJobs, mirror: ObservedMirror, *, is_given_up: bool) -> None:
        operation = "" if mirror.operation is None else mirror.operation.id
        links.advance_state(
            mirror.name, _M.ACTIVE, operation=operation, is_given_up=is_given_up, may_go_on=self.may_go_on
        )

    def _finish_reversal(self, links: LinksByJobs, mirror: ObservedMirror, operation: Operation) -> ObservedMirror:
        peer = self._read_source_mirror(mirror)
        if peer.operation is not None and peer.operation.id == operation.id:
            if peer.status not in UNDER_WAY:
                return mirror
            self.drive(mirror.source_cluster, mirror.source)
            return links.read_mirror(mirror.name)
        if peer.status is not _M.STOPPED or peer.stopped_by not in REVERSALS:
            raise broken_reversal_error(mirror, peer)
        maps = self._get_links(mirror.source_cluster).read_offset_maps(mirror.source)
        links.record_agreement(mirror.name, peer.topic_id, self._read_bounds(mirror), operation=operation.id, maps=maps)
        return self._set_status(links, mirror, _M.PAUSED if operation.verb == "reverse-and-pause" else _M.ACTIVE)

    def _prepare_restore(self, links: LinksByJobs, mirror: ObservedMirror, operation: Operation) -> ObservedMirror:
        peer = self._read_source_mirror(mirror)
        check_restorable(self.providers, mirror.cluster, mirror.name, peer)
        links.convert_to_mirror(mirror.name, peer, operation, may_go_on=self.may_go_on)
        try:
            ends = self._check_approved(mirror.cluster, mirror.name, peer, operation.approved)
        except StalePlanError:
            links.request_verb(mirror.name, FAILOVER, operation=self.new_id(), may_go_on=self.may_go_on)
            raise
        mirror = links.record_end_offsets(mirror.name, operation=operation.id, ends=ends)
        return self._set_status(links, mirror, _M.PENDING_RESTORE)

    def _run_restore(
        self, links: LinksByJobs, mirror: ObservedMirror, operation: Operation, cut: dict[int, TruncatedPartition]
    ) -> ObservedMirror:
        # The topic is closed again, because another process may have reopened it.
        links.convert_to_mirror(mirror.name, self._read_source_mirror(mirror), operation, may_go_on=self.may_go_on)
        cut |= links.truncate(mirror.name, operation=operation.id, may_go_on=self.may_go_on)
        source = mirror.source_topic_id or ""
        maps = self._get_links(mirror.source_cluster).read_offset_maps(mirror.source)
        if maps is not None:
            # The sync of groups needs the map that this records.
            links.record_agreement(mirror.name, source, self._read_bounds(mirror), operation=operation.id, maps=maps)
        self.sync(mirror)
        if maps is None:
            links.record_agreement(mirror.name, source, self._read_bounds(mirror), operation=operation.id)
        return self._set_status(links, mirror, _M.ACTIVE)

    def _finish_source(self, mirror: ObservedMirror) -> None:
        source_mirror = read_mirror(self._get_links(mirror.source_cluster), mirror.source)
        if (
            source_mirror is not None
            and source_mirror.status is _M.PENDING_MIRROR
            and source_mirror.source == mirror.name
        ):
            self.drive(mirror.source_cluster, mirror.source)

    def _read_source_ends(self, mirror: ObservedMirror) -> dict[int, int]:
        return {partition: bound.end for partition, bound in self._read_bounds(mirror).items()}

    def _copy_all(self, links: LinksByJobs, mirror: ObservedMirror, ends: Mapping[int, int]) -> None:
        self.copy(mirror, ends)
        reached = links.read_positions(mirror.name)
        have = {
            part: reached[part].end if part in reached else 0
            for part in ends
            # Brokers may not list a new partition yet.
        }
        behind = {part: end - have[part] for part, end in ends.items() if have[part] < end}
        if behind:
            part, lag = next(iter(sorted(behind.items())))
            message = f"partition {part} of mirror {mirror.name} lacks {lag:,} records of its source"
            hint = "A transaction is open there: copying continues when it ends. `mirror failover` does not wait."
            raise IncompleteError(message, hint=hint)

    def _set_status(self, links: LinksByJobs, mirror: ObservedMirror, to: MirrorStatus) -> ObservedMirror:
        operation = "" if mirror.operation is None else mirror.operation.id
        return links.advance_state(mirror.name, to, operation=operation, may_go_on=self.may_go_on)

    def _check_sides(self, what: str, mirror: ObservedMirror) -> None:
        def read_side(cluster: str) -> tuple[str, MirrorLinkSpec | None]:
            links = self._get_links(cluster).list_links()
            return cluster, next((link.declared.spec for link in links if link.name == mirror.link), None)

        refused = check_role_swap(what, mirror.link, read_side(mirror.cluster), read_side(mirror.source_cluster))
        if refused is not None:
            raise UserError(refused.message, hint=refused.hint)

    def _read_source_mirror(self, mirror: ObservedMirror) -> ObservedMirror:
        return self._get_links(mirror.source_cluster).read_mirror(mirror.source)

    def _get_provider(self, cluster: str) -> Provider:
        return get_provider(self.providers, cluster)

    def _get_links(self, cluster: str) -> LinksByJobs:
        return require_job_links(self._get_provider(cluster))

    def _read_bounds(self, mirror: ObservedMirror) -> Mapping[int, Bounds]:
        return self._get_provider(mirror.source_cluster).open_log(get_source_address(mirror)).read_bounds()

    def _record_trouble(self, links: LinksByJobs, mirror: ObservedMirror, error: ReconcilerError) -> None:
        """Stops and a lost lease are not recorded."""
        try:
            self.may_go_on()
        except ReconcilerError:
            return
        code = getattr(error, "code", None) or _CODES.get(type(error).__name__, "INTERNAL_ERROR")
        operation = None if mirror.operation is None else mirror.operation.id
        links.record_trouble(mirror.name, Trouble(code, error.message), operation=operation)


_CODES: Final = {
    "NotAuthorizedError": "AUTHORIZATION_ERROR",
    "RetryableError": "REMOTE_LINK_NOT_FOUND_ERROR",
    "IncompleteError": "INTERNAL_ERROR",
    "UserError": "INVALID_REQUEST_ERROR",
    "NotFoundError": "INVALID_REQUEST_ERROR",
    "InvalidNamespaceError": "INVALID_TOPIC",
}


def _has_begun(mirror: ObservedMirror, verbs: Collection[str]) -> bool:
    return mirror.operation is not None and mirror.operation.verb in verbs and mirror.status in UNDER_WAY


def _read_progress(mirror: ObservedMirror) -> tuple[MirrorStatus, str | None]:
    return mirror.status, None if mirror.operation is None else mirror.operation.id


Verb = Literal["promote", "reverse-and-start", "reverse-and-pause", "truncate-and-restore"]


def drive_transition(driver: TransitionDriver, action: Transition) -> ObservedMirror:
    """Drive an action's transition; return the mirror at the action's address."""
    cluster, name = cluster_of(action.address) or "", full_name_of(action.address)
    verb = cast("Verb", action.verb)
    match verb:
        case "promote":
            if not _has_ended(driver, cluster, name, verb):
                driver.promote(cluster, name)
        case "reverse-and-start" | "reverse-and-pause":
            if not _has_ended(driver, cluster, name, verb):
                _check_ended(driver.reverse(cluster, name, is_paused=verb == "reverse-and-pause"))
            driver.drive(cluster, name)
        case "truncate-and-restore":
            diverged = cast("WithDiverged", action.parameters.get("diverged", "refuse"))
            wanted, cost = action.after, action.estimate.role
            restored, _ = driver.restore(
                cluster,
                name,
                diverged,
                wanted=wanted if isinstance(wanted, MirrorTopic) else None,
                approved=None if cost is None or cost.unknown is not None else cost.lost,
            )
            _check_ended(restored)
        case _:
            assert_never(verb)
    mirror = require_links(driver.providers[cluster]).read_mirror(name)
    _check_ended(mirror)
    return mirror


def _has_ended(driver: TransitionDriver, cluster: str, name: str, verb: str) -> bool:
    mirror = require_links(driver.providers[cluster]).read_mirror(name)
    return mirror.status is MirrorStatus.STOPPED and mirror.stopped_by == verb


def _check_ended(mirror: ObservedMirror) -> None:
    if mirror.status in UNDER_WAY:
        address = address_of("mirror", mirror.cluster, mirror.name)
        why = "" if mirror.trouble is None else f": {mirror.trouble.message}"
        raise IncompleteError(
            f"{address} is {mirror.status}, and does not continue{why}",
            hint=f"Continue it: reconciler run --once --only mirror. Its state: reconciler mirror describe {address}",
        )


_CONTINUE_HINT: Final = "Continue with: reconciler run --once --only mirror"


def explain_interrupted(providers: Mapping[str, Provider], address: Address) -> IncompleteError | None:
    """Explain a mirror's interrupted transition; `None` if no transition was interrupted."""
    try:
        links = require_links(providers[cluster_of(address) or ""]).job_steps
        mirror = None if links is None else read_mirror(links, full_name_of(address))
        source_mirror = (
            None if mirror is None else read_mirror(require_links(providers[mirror.source_cluster]), mirror.source)
        )
    except ReconcilerError:
        return None
    if mirror is None:
        return None
    peer = address_of("mirror", mirror.source_cluster, mirror.source)
    is_joined = source_mirror is not None and source_mirror.status is MirrorStatus.PENDING_MIRROR
    if mirror.status in UNDER_WAY:
        state, opens = _describe_progress(address, mirror, peer if is_joined else None)
        message = f"stopped before the end: {state}"
    elif mirror.status is MirrorStatus.STOPPED and mirror.stopped_by in REVERSALS and is_joined:
        message = (
            f"stopped before the end: {address} takes records, and {peer} is PENDING_MIRROR: it does not follow it yet"
        )
        opens = ""
    else:
        return None
    return IncompleteError(message, hint=f"{_CONTINUE_HINT}. {opens}" if opens else _CONTINUE_HINT)


def _describe_progress(address: Address, mirror: ObservedMirror, shut: Address | None) -> tuple[str, str]:
    verb = "" if mirror.operation is None else mirror.operation.verb
    if verb == PROMOTE:
        return f"{address} is {mirror.status}: it accepts no records yet", _build_failover_hint(address)
    if verb == RESTORE:
        other = f"its mirror on {mirror.source_cluster} continues to accept them"
        return f"{address} is {mirror.status} and takes no records; {other}", _build_failover_hint(address)
    if shut is None:
        return (
            f"{address} is {mirror.status}; its source still takes records, until it is continued",
            _build_failover_hint(address),
        )
    return f"{address} is {mirror.status} and {shut} PENDING_MIRROR: neither takes records", _build_failover_hint(shut)


def _build_failover_hint(address: Address) -> str:
    return f"To abandon it and accept records there: reconciler mirror failover {address}"


def explain_all_interrupted(
    providers: Mapping[str, Provider], actions: Iterable[Action], left: Collection[str]
) -> tuple[IncompleteError, ...]:
    """Explain the transitions that a stopped run left in progress."""
    transitions = (
        action
        for action in actions
        if isinstance(action, Transition) and action.verb in TWO_SIDED_VERBS and action.id in left
    )
    return tuple(
        error for action in transitions if (error := explain_interrupted(providers, action.address)) is not None
    )


# A promotion is final, so the mirror is copied first until its lag is zero.


_NAMED: Final = 5
_PAUSE_S: Final = 1.0
CONTINUE_HINT: Final = "Run the same command again; an apply: --resume"
"""Only an apply can be resumed."""
_SLICE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class LaggingPartition:
    """Lag of a mirror partition. `stable` is the offset of an open transaction."""

    partition: int
    lag: int
    stable: int | None = None

    def __str__(self) -> str:
        lacks = f"partition {self.partition} lacks {pluralize(self.lag, 'record', 'records', grouping='')}"
        return lacks if self.stable is None else f"{lacks}: a transaction is open there since offset {self.stable:,}"


@dataclass(frozen=True)
class CatchUp:
    """Copies a mirror until its lag is zero."""

    providers: Mapping[str, Provider]
    copy: Callable[[ObservedMirror], None]
    is_stopped: Callable[[], bool]
    clock: Callable[[], float] = monotonic

    def run(self, cluster: str, full_name: str, timeout_ms: int | None = None) -> None:
        """Copy until no partition lags. Raises `RetryableError` if the lag does not shrink for `timeout_ms`.

        The default is the link's; -1 means unlimited.
        """
        links = require_links(self.providers[cluster])
        mirror = links.read_mirror(full_name)
        least: int | None = None
        shrunk_at = self.clock()
        while True:
            self._check_stop(full_name)
            self.copy(mirror)
            behind = self.list_lagging(mirror)
            lag = sum(partition_lag.lag for partition_lag in behind)
            if not lag:
                return
            if least is None or lag < least:
                least, shrunk_at = lag, self.clock()
            patience_ms = self._compute_patience_ms(mirror) if timeout_ms is None else timeout_ms
            if patience_ms != UNLIMITED and self.clock() - shrunk_at >= patience_ms / 1000:
                raise _stuck_error(mirror, behind, patience_ms / 1000)
            self._wait(full_name)

    def list_lagging(self, mirror: ObservedMirror) -> list[LaggingPartition]:
        """Return a mirror's lagging partitions."""
        source = address_of("topic", mirror.source_cluster, mirror.source)
        bounds = self.providers[mirror.source_cluster].open_log(source).read_bounds()
        own = require_links(self.providers[mirror.cluster]).read_positions(mirror.name)
        return [
            _compute_lag(partition, bound, own[partition].end if partition in own else 0)
            for partition, bound in sorted(bounds.items())
            if partition not in own or own[partition].end < bound.end
        ]

    def _compute_patience_ms(self, mirror: ObservedMirror) -> int:
        links = require_links(self.providers[mirror.cluster]).list_links()
        return next(link.declared.spec.retry_timeout for link in links if link.name == mirror.link)

    def _wait(self, full_name: str) -> None:
        until = self.clock() + _PAUSE_S
        waiting = threading.Event()
        while self.clock() < until:
            self._check_stop(full_name)
            waiting.wait(_SLICE_S)

    def _check_stop(self, full_name: str) -> None:
        if self.is_stopped():
            raise IncompleteError(f"stopped before {full_name} had caught up: it was not promoted", hint=CONTINUE_HINT)


def _compute_lag(partition: int, bound: Bounds, end: int) -> LaggingPartition:
    return LaggingPartition(partition, bound.end - end, bound.stable if bound.stable < bound.end else None)


def _stuck_error(mirror: ObservedMirror, behind: list[LaggingPartition], patience_s: float) -> RetryableError:
    named = "; ".join(map(str, behind[:_NAMED]))
    more = f"; and {len(behind) - _NAMED:,} more" if behind[_NAMED:] else ""
    address = address_of("mirror", mirror.cluster, mirror.name)
    is_open = any(partition_lag.stable is not None for partition_lag in behind)
    stop = (
        "Let that transaction end" if is_open else f"Stop the producers of {mirror.source} on {mirror.source_cluster}"
    )
    return RetryableError(
        f"the lag of {address} did not shrink for {patience_s:,.0f} s: {named}{more}; nothing was changed",
        hint=f"{stop}, then try again. A failover does not wait, and loses what is missing.",
    )
