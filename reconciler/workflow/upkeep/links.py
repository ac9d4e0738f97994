"""Links kept going by a pass of `run`: their tasks that are due, and transitions that somebody began, driven on.

Groups come last, after the records that they go on from: `begun`, copy, `ended`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from reconciler.applying.events import ActionDone, ActionFailed
from reconciler.errors import IncompleteError, ReconcilerError, RetryableError
from reconciler.providers.keeping import Upkept
from reconciler.resources.address import address_of, cluster_address
from reconciler.resources.mirroring import TASKS
from reconciler.workflow.linking.following.pacing import Pace
from reconciler.workflow.linking.following.syncing import LINK, bring_groups, sync_links
from reconciler.workflow.upkeep.outcomes import JobOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from reconciler.applying.events import Event
    from reconciler.providers.base import Provider
    from reconciler.resources.address import Address
    from reconciler.workflow.linking.following.sides import LinkSynced
    from reconciler.workflow.linking.transitions.driving import Driver

JOB: Final = "link"
"""What an outcome calls it; it belongs to the job `mirror`."""


@dataclass(frozen=True, slots=True)
class Begun:
    """What came of the links of a cluster so far in a pass."""

    cluster: str
    changed: int = 0
    errors: tuple[ReconcilerError, ...] = ()
    due: frozenset[str] = frozenset()
    """Links whose groups are to be brought once records are copied."""
    seconds: float = 0.0
    failure: ReconcilerError | None = None


@dataclass
class Links:
    """The links of a workspace, pass after pass. What was done when is remembered as long as this is."""

    providers: Mapping[str, Provider]
    driver: Driver
    now_ms: Callable[[], int]
    report: Callable[[Event], None]
    is_stopped: Callable[[], bool]
    _pace: Pace = field(default_factory=Pace)

    def begun(self, cluster: str, is_wanted: Callable[[Address], bool]) -> Begun:
        """Do what comes before records are copied: whether sources are reached, mirrors made, shaped and driven on.

        What fails for one link, or one mirror of it, is said and stops no other.
        """
        return self._with(Begun(cluster), self._synced(cluster, is_wanted))

    def ended(self, begun: Begun) -> JobOutcome | None:
        """Bring groups to where their mirrors are by now, and return what came of it all; `None`: nothing was due."""
        due = () if self.is_stopped() else begun.due
        done = self._with(begun, bring_groups(begun.cluster, self.providers, self._pace, self.now_ms, due))
        if not (done.changed or done.errors or done.failure):
            return None
        upkept = Upkept("change", done.changed, failed=len(done.errors), errors=done.errors)
        return JobOutcome(JOB, done.cluster, done.seconds, upkept, done.failure)

    def _with(self, begun: Begun, links: Iterator[LinkSynced]) -> Begun:
        """Go through links and add what came of them."""
        cluster, began_ms, failure = begun.cluster, self.now_ms(), begun.failure
        done: list[LinkSynced] = []
        try:
            done.extend(links)
        except ReconcilerError as error:
            failure = error
            self.report(ActionFailed(f"{JOB}:{cluster}", cluster_address(cluster), error.message, error.hint))
        return Begun(
            cluster,
            begun.changed + sum(sum(link.done.values()) + len(link.drove) for link in done),
            (*begun.errors, *(error for link in done for error in self._told(link))),
            frozenset(link.link for link in done if link.are_groups_due),
            begun.seconds + max(0, self.now_ms() - began_ms) / 1000,
            failure,
        )

    def _synced(self, cluster: str, is_wanted: Callable[[Address], bool]) -> Iterator[LinkSynced]:
        def is_chosen(name: str) -> bool:
            return not self.is_stopped() and self._is_chosen(cluster, name, is_wanted)

        return sync_links(cluster, self.providers, self._pace, self.now_ms, driver=self.driver, is_wanted=is_chosen)

    def _is_chosen(self, cluster: str, link: str, is_wanted: Callable[[Address], bool]) -> bool:
        """Tell whether a link was selected, or a mirror of it."""
        if is_wanted(address_of("link", cluster, link)):
            return True
        mirrors = self.providers[cluster].links.mirrors(link)
        return any(is_wanted(address_of("mirror", cluster, mirror.name)) for mirror in mirrors)

    def _told(self, link: LinkSynced) -> Sequence[ReconcilerError]:
        """Say what a pass over a link came to; what it is about goes before each error."""
        whole = address_of("link", link.cluster, link.link)
        for name in link.drove:
            address = address_of("mirror", link.cluster, name)
            self.report(ActionDone(f"{JOB}:{address}", address, 0.0))
        errors = []
        for what, error in link.errors.items():
            is_mirror = what != LINK and what not in TASKS
            address = address_of("mirror", link.cluster, what) if is_mirror else whole
            about = address if is_mirror or what == LINK else f"{address}, {what}"
            errors.append(self._of_pass(about, error))
            self.report(ActionFailed(f"{JOB}:{address}", address, errors[-1].message, error.hint))
        return errors

    def _of_pass(self, about: str, error: ReconcilerError) -> ReconcilerError:
        """Return an error that says what it is about. What only cannot end yet is not what somebody stopped."""
        said = copy(error)
        if isinstance(error, IncompleteError) and not self.is_stopped():
            said = RetryableError(error.message, hint=error.hint)
        said.message = f"{about}: {error.message}"
        return said
