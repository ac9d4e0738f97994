"""A pass over a link: whether it reaches its source, its tasks that are due, and transitions that somebody began.

Records are not copied here: who does passes copies them after `sync_links` and before `bring_groups`, for no group is
brought to where its mirror has not come yet. Any process may do a pass, and any number of them at once: each step is
whole.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from reconciler.errors import ReconcilerError, UserError
from reconciler.lifecycles.mirror import LinkStatus
from reconciler.resources.mirroring import ACL_SYNC, AUTO_CREATE_MIRROR, CONSUMER_OFFSET_SYNC, TOPIC_CONFIGS_SYNC
from reconciler.workflow.linking.following.bringing import bring
from reconciler.workflow.linking.following.making import make
from reconciler.workflow.linking.following.reaching import Reached, link_status_of, reached
from reconciler.workflow.linking.following.ruling import rule
from reconciler.workflow.linking.following.shaping import follow, note_sources
from reconciler.workflow.linking.following.sides import LinkSynced, Sides
from reconciler.workflow.linking.following.telling import TaskDone, note_task
from reconciler.workflow.linking.transitions.driving import UNDER_WAY, Driver

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from reconciler.providers.base import Provider
    from reconciler.resources.mirroring import LinkSeen
    from reconciler.workflow.linking.following.pacing import Pace

LINK = "link"
"""What an outcome calls what is wrong with the link itself."""


def sync_links(
    cluster: str,
    providers: Mapping[str, Provider],
    pace: Pace,
    now_ms: Callable[[], int],
    *,
    driver: Driver | None = None,
    is_wanted: Callable[[str], bool] = lambda _name: True,
) -> Iterator[LinkSynced]:
    """Do a pass over the links of a destination, those that are wanted by name, and yield what it did for each.

    What is left to do are groups, of those links whose groups are due: `bring_groups`, once records are copied.

    Raises:
        RetryableError: The destination does not answer.
    """
    links = providers[cluster].links
    mirrors = links.mirrors()
    for link in links.links():
        if not is_wanted(link.name):
            continue
        source = providers.get(link.declared.spec.source)
        if source is None:
            yield _unknown(cluster, link)
            continue
        own = tuple(mirror for mirror in mirrors if mirror.link == link.name)
        yield sync_link(Sides(link, own, providers[cluster], source, now_ms()), pace, driver)


def bring_groups(
    cluster: str, providers: Mapping[str, Provider], pace: Pace, now_ms: Callable[[], int], links: Collection[str]
) -> Iterator[LinkSynced]:
    """Bring groups over some links of a destination, as its mirrors are by now, and yield what came of each link.

    Raises:
        RetryableError: The destination does not answer.
    """
    if not links:
        return
    below = providers[cluster].links
    mirrors = below.mirrors()
    for link in below.links():
        source = providers.get(link.declared.spec.source)
        if link.name not in links or source is None:
            continue
        if link.status is not LinkStatus.ACTIVE:  # Since its other tasks were done: it is not too late next time.
            pace.again(link.id, CONSUMER_OFFSET_SYNC)
            continue
        own = tuple(mirror for mirror in mirrors if mirror.link == link.name)
        sides = Sides(link, own, providers[cluster], source, now_ms())
        found = _attempted(sides, pace, CONSUMER_OFFSET_SYNC, partial(bring, sides, pace))
        errors = {} if found.error is None else {CONSUMER_OFFSET_SYNC: found.error}
        yield LinkSynced(cluster, link.name, link.status, {CONSUMER_OFFSET_SYNC: found.count}, errors=errors)


def sync_link(sides: Sides, pace: Pace, driver: Driver | None = None) -> LinkSynced:
    """Do a pass over one link, but for its groups; what fails in one task does not stop the others.

    A paused link does nothing by itself; transitions that were asked for are gone on with.

    Raises:
        RetryableError: The destination does not answer.
    """
    cluster, name = sides.link.declared.metadata.cluster, sides.link.name
    if sides.link.status is LinkStatus.PAUSED:
        drove, errors = _driven(sides, driver)
        return LinkSynced(cluster, name, LinkStatus.PAUSED, drove=drove, errors=errors)
    if sides.spec.paused:  # And broken: it may have been mended.
        tried = reached(sides, lambda _version: False)
        if isinstance(tried, ReconcilerError):
            return LinkSynced(cluster, name, link_status_of(tried), errors={LINK: tried})
        return LinkSynced(cluster, name, LinkStatus.PAUSED)
    here = sides.destination.links.syncs.version()
    tasks = _Tasks(sides, pace, here)
    found = reached(sides, tasks.needs_offers)
    if isinstance(found, ReconcilerError):
        return LinkSynced(cluster, name, link_status_of(found), errors={LINK: found})
    failed, done = tasks.done(found)
    drove, errors = _driven(sides, driver)
    errors |= {task: each.error for task, each in done.items() if each.error is not None}
    counts = {task: each.count for task, each in done.items()}
    return LinkSynced(cluster, name, LinkStatus.ACTIVE, counts, failed, drove, errors, are_groups_due=tasks.brings)


@dataclass
class _Tasks:
    """The tasks of a link in one pass; `here` is the version of its destination when that began.

    What rests on the versions of both clusters alone is done once for each pair of them: ten thousand mirrors that are
    well are not looked at every few seconds.
    """

    sides: Sides
    pace: Pace
    here: str

    def __post_init__(self) -> None:
        """See what is due."""
        spec = self.sides.spec
        auto, groups, rules = spec.auto_create, spec.consumer_offset_sync, spec.acl_sync
        self.makes = self._is_on(AUTO_CREATE_MIRROR, is_enabled=auto is not None and auto.enabled) and self._is_due(
            AUTO_CREATE_MIRROR, spec.metadata_interval
        )
        self.brings = (
            self._is_on(CONSUMER_OFFSET_SYNC, is_enabled=groups is not None and groups.enabled)
            and groups is not None
            and self._is_due(CONSUMER_OFFSET_SYNC, groups.interval)
        )
        self.rules = self._is_on(ACL_SYNC, is_enabled=rules is not None and rules.enabled)

    def needs_offers(self, version: str) -> bool:
        """Tell whether anything is to be done about topics, where the source has this version."""
        return self._makes(version) or self._shapes(version)

    def done(self, found: Reached) -> tuple[tuple[str, ...], dict[str, TaskDone]]:
        """Do what is due, in the order in which one rests on the other; return what failed for good, and the rest."""
        failed: tuple[str, ...] = ()
        done: dict[str, TaskDone] = {}
        offered, version = found.offered or {}, found.version
        shapes = self._shapes(version)
        if shapes:
            failed = note_sources(self.sides, offered)
        if self._makes(version):
            done[AUTO_CREATE_MIRROR] = self._done(AUTO_CREATE_MIRROR, lambda: make(self.sides, offered))
            self._settle(AUTO_CREATE_MIRROR, version, is_done=done[AUTO_CREATE_MIRROR].error is None)
            if done[AUTO_CREATE_MIRROR].count:  # Rules are of those that were just made, too.
                mirrors = self.sides.destination.links.mirrors(self.sides.link.name)
                self.sides = replace(self.sides, mirrors=tuple(mirrors))
        if shapes:
            done[TOPIC_CONFIGS_SYNC] = self._done(TOPIC_CONFIGS_SYNC, lambda: follow(self.sides, offered))
            if self.rules:
                done[ACL_SYNC] = self._done(ACL_SYNC, lambda: rule(self.sides))
            waits = any(mirror.trouble is not None for mirror in self.sides.live)
            errors = [task for task in (TOPIC_CONFIGS_SYNC, ACL_SYNC) if task in done and done[task].error is not None]
            self._settle(TOPIC_CONFIGS_SYNC, version, is_done=not waits and not errors)
        return failed, done

    def _makes(self, version: str) -> bool:
        return self.makes and not self.pace.is_settled(self.sides.link.id, AUTO_CREATE_MIRROR, (version, self.here))

    def _shapes(self, version: str) -> bool:
        return not self.pace.is_settled(self.sides.link.id, TOPIC_CONFIGS_SYNC, (version, self.here))

    def _settle(self, task: str, version: str, *, is_done: bool) -> None:
        if is_done:  # Where this pass itself has committed something, the next one looks once more.
            self.pace.settle(self.sides.link.id, task, (version, self.here))

    def _is_on(self, task: str, *, is_enabled: bool) -> bool:
        """Tell whether the link does it at all; what was wrong with it when it did is over."""
        if not is_enabled:
            note_task(self.sides, task, TaskDone())
        return is_enabled

    def _is_due(self, task: str, interval_ms: int) -> bool:
        return self.pace.is_due(self.sides.link.id, task, interval_ms, self.sides.now_ms)

    def _done(self, task: str, do: Callable[[], TaskDone]) -> TaskDone:
        return _attempted(self.sides, self.pace, task, do)


def _attempted(sides: Sides, pace: Pace, task: str, do: Callable[[], TaskDone]) -> TaskDone:
    """Do a task and note what came of it; what could not be done is due again at once."""
    try:
        found = do()
    except ReconcilerError as error:
        pace.again(sides.link.id, task)
        found = TaskDone(0, error)
    note_task(sides, task, found)
    return found


def _driven(sides: Sides, driver: Driver | None) -> tuple[tuple[str, ...], dict[str, ReconcilerError]]:
    """Go on with transitions that are under way, whoever began them."""
    ended: list[str] = []
    errors: dict[str, ReconcilerError] = {}
    for mirror in sides.mirrors if driver is not None else ():
        if mirror.status in UNDER_WAY and driver is not None:
            try:
                after = driver.drive(mirror.cluster, mirror.name)
            except ReconcilerError as error:
                errors[mirror.name] = error
            else:
                ended += [] if after.status in UNDER_WAY else [mirror.name]
    return tuple(ended), errors


def _unknown(cluster: str, link: LinkSeen) -> LinkSynced:
    source = link.declared.spec.source
    message = f"link {link.name} of cluster {cluster}: its source, cluster {source}, is not known here"
    error = UserError(message, hint="Declare it as a Cluster, or name a state that has it with --state.")
    return LinkSynced(cluster, link.name, link.status, errors={LINK: error})
