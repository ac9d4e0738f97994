"""A link with both its clusters: is its source reached, and which tasks are due.

A process that starts anew looks once more: that is all that is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from reconciler.errors import (
    InvalidNamespaceError,
    MendFirstError,
    NotAuthorizedError,
    QuotaExceededError,
    ReconcilerError,
    RetryableError,
    SourceChangedError,
    UserError,
)
from reconciler.lifecycles import LinkStatus, MirrorStatus
from reconciler.providers.protocol import links_by_jobs
from reconciler.resources.address import Address, address_of
from reconciler.resources.base import UNLIMITED
from reconciler.resources.mirrors import (
    RECORDS_REFUSED,
    SOURCE_TOPIC_MAY_BE_DELETED,
    LinkSeen,
    MirrorSeen,
    Offered,
    Trouble,
)

if TYPE_CHECKING:
    from reconciler.providers.protocol import Provider
    from reconciler.resources.inventory import ClusterIdentity
    from reconciler.resources.mirror_link import MirrorLinkSpec
    from reconciler.resources.owners import ResourceOwner


def provider_named(providers: Mapping[str, Provider], cluster: str) -> Provider:
    """Return what reaches a cluster.

    Raises:
        UserError: It is not known here.
    """
    if cluster not in providers:
        message = f"cluster {cluster} is not known here"
        raise UserError(message, hint="Declare it, or name a state that has it with --state.")
    return providers[cluster]


@dataclass
class Settled:
    """Groups of a link of which nothing is to be brought until they commit again: their versions at the source."""

    of: Hashable = None
    """What else it rests on: which mirrors there are, and which groups are taken."""
    versions: dict[str, str] = field(default_factory=dict)


@dataclass
class Pace:
    """The memory of one runner."""

    _looked_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    _groups: dict[str, Settled] = field(default_factory=dict)
    _worlds: dict[tuple[str, str], Hashable] = field(default_factory=dict)
    _said: dict[tuple[str, str], str] = field(default_factory=dict)

    def is_due(self, link_id: str, task: str, interval_ms: int, now_ms: int) -> bool:
        """Tell whether a task is to be done now, and take note. A clock that was set back does not stop it."""
        last = self._looked_ms.get((link_id, task))
        is_due = last is None or now_ms < last or (interval_ms != UNLIMITED and now_ms - last >= interval_ms)
        if is_due:
            self._looked_ms[link_id, task] = now_ms
        return is_due

    def again(self, link_id: str, task: str) -> None:
        """Let a task be due at once: it could not be done."""
        self._looked_ms.pop((link_id, task), None)

    def is_settled(self, link_id: str, task: str, world: Hashable) -> bool:
        """Tell whether nothing is to be done in a world, as both clusters say it by their versions."""
        return self._worlds.get((link_id, task)) == world

    def settle(self, link_id: str, task: str, world: Hashable) -> None:
        """Take note that all is done in a world: until it is another one, nobody has to look."""
        self._worlds[link_id, task] = world

    def is_news(self, link_id: str, task: str, message: str) -> bool:
        """Tell whether something else was said of a task last, and take note; empty: nothing is wrong."""
        is_news = self._said.get((link_id, task), "") != message
        self._said[link_id, task] = message
        return is_news

    def groups(self, link_id: str, of: Hashable) -> dict[str, str]:
        """Return the versions of groups that are settled; none where what that rests on is another now."""
        known = self._groups.setdefault(link_id, Settled())
        if known.of != of:
            known.of, known.versions = of, {}
        return known.versions


# A link with the clusters at both its ends, and what a pass found of it.


_M = MirrorStatus

LIVE = frozenset({_M.ACTIVE, _M.PAUSED, _M.LINK_PAUSED, _M.SOURCE_UNAVAILABLE, _M.LINK_FAILED})
"""States in which a mirror follows its source, or would but for its link or because somebody paused it."""


@dataclass(frozen=True)
class LinkView:
    """A link as its destination has it, at `now_ms`."""

    link: LinkSeen
    mirrors: tuple[MirrorSeen, ...]
    destination: Provider
    source: Provider
    now_ms: int
    owner: ResourceOwner | None = None
    """The other workspace that owns it, and alone writes down what is wrong with it; `None`: there is none."""

    @cached_property
    def met(self) -> ClusterIdentity | ReconcilerError | None:
        """Which cluster is at its source, or why none answers: asked once; `None`: there is none."""
        try:
            return self.source.identify()
        except ReconcilerError as error:
            return error

    @property
    def spec(self) -> MirrorLinkSpec:
        """What is declared of it."""
        return self.link.declared.spec

    @property
    def principal(self) -> str:
        """As whom it reads its source: only what denies that to it matters."""
        return principal_of(self.link.name)

    @property
    def live(self) -> tuple[MirrorSeen, ...]:
        """Its mirrors that are not over, and not on their way to another state: those somebody drives."""
        return tuple(mirror for mirror in self.mirrors if mirror.status in LIVE and mirror.operation is None)


def learn_names(providers: Mapping[str, Provider], mirrors: Iterable[MirrorSeen]) -> None:
    """Let clusters know what mirrors and their sources are called, whoever declared them."""
    named: dict[str, list[Address]] = {}
    for each in mirrors:
        named.setdefault(each.cluster, []).append(address_of("topic", each.cluster, each.name))
        named.setdefault(each.source_cluster, []).append(address_of("topic", each.source_cluster, each.source))
    for cluster, addresses in named.items():
        if cluster in providers:
            providers[cluster].learn(addresses)


def principal_of(link: str) -> str:
    """Return as whom a link reads its source."""
    return f"User:link-{link}"


@dataclass(frozen=True, slots=True)
class LinkSynced:
    """What a pass did for a link: what it kept in step, and what it drove. Records are copied by who calls."""

    cluster: str
    link: str
    status: LinkStatus
    """Whether its source could be reached; nothing was done where it could not."""
    done: Mapping[str, int] = field(default_factory=dict)
    """How much each task that was due changed: mirrors made, groups, places whose access rules are others now."""
    failed: tuple[str, ...] = ()
    """Mirrors that are FAILED now."""
    drove: tuple[str, ...] = ()
    """Mirrors whose transition has ended."""
    errors: Mapping[str, ReconcilerError] = field(default_factory=dict)
    """By task, `link` for the link itself, or the full name of a mirror whose transition could not go on."""
    are_groups_due: bool = False
    """Whether offsets of groups are to be brought, once records are copied."""
    left: str = ""
    """What of it is left to the other workspace that owns it, or why all of it is."""
    is_left: bool = False
    """Whether all of it is: nothing is copied here, either."""


# What went wrong with a link's tasks, in the codes of the field, written down where it is news.


_CODES: Final[tuple[tuple[type[ReconcilerError], str], ...]] = (
    (InvalidNamespaceError, "InvalidNamespaceError"),
    (QuotaExceededError, "POLICY_VIOLATION_ERROR"),
    (NotAuthorizedError, "AUTHORIZATION_ERROR"),
    (UserError, "INVALID_REQUEST_ERROR"),
)


@dataclass(frozen=True, slots=True)
class TaskDone:
    """What a task changed, and the first of what it could not do; `code` where the error does not say it."""

    count: int = 0
    error: ReconcilerError | None = None
    code: str | None = None
    note: str | None = None
    """What is written down of the error, where that is more than its message."""


def code_of(error: ReconcilerError) -> str:
    """Return the code of what went wrong, as `mirror errors` shows it."""
    if isinstance(error, SourceChangedError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), "INTERNAL_ERROR")


def failed(count: int, errors: Mapping[str, ReconcilerError]) -> TaskDone:
    """Return what a task came to of which some failed, by name: the first of them, and how many more."""
    if not errors:
        return TaskDone(count)
    name, error = min(errors.items())
    more = f" (and {len(errors) - 1:,} more)" if len(errors) > 1 else ""
    kind = RetryableError if isinstance(error, RetryableError) else UserError
    return TaskDone(count, kind(f"{name}: {error.message}{more}", hint=error.hint), code_of(error))


def note_task(sides: LinkView, task: str, done: TaskDone) -> None:
    """Write down what is wrong with a task, or that nothing is any more; not what only has to be tried again."""
    if isinstance(done.error, RetryableError) or sides.owner is not None:
        return
    known, trouble = sides.link.tasks.get(task), None
    if done.error is not None:
        trouble = Trouble(done.code or code_of(done.error), done.note or done.error.message, sides.now_ms)
    before = None if known is None else (known.code, known.message)
    if before != (None if trouble is None else (trouble.code, trouble.message)):
        links_by_jobs(sides.destination).task_trouble(sides.link.name, task, trouble)


# Whether a link reaches its source, and whether that is the cluster it was made to.
#
# A source that does not answer is waited for: the link is UNAVAILABLE, and ACTIVE again by itself. What somebody has to
# mend (credentials, a location at which another cluster lies) makes it FAILED, until it has been mended.


TIMEOUT: Final = "TIMEOUT_ERROR"
AUTHENTICATION: Final = "AUTHENTICATION_ERROR"
MISCONFIGURATION: Final = "MISCONFIGURATION_ERROR"


@dataclass(frozen=True, slots=True)
class LinkSource:
    """A source that answers: which cluster, its version, and what it offers where that was asked."""

    cluster_id: str
    version: str
    offered: Mapping[str, Offered] | None


def reached(sides: LinkView, needs: Callable[[str], bool]) -> LinkSource | ReconcilerError:
    """Look at the source of a link, and at what it offers where its version `needs` that; or return why it cannot be.

    The link says from then on whether it could.
    """
    try:
        found = _reached(sides, needs)
    except ReconcilerError as error:
        _note(sides, *_verdict(sides, error))
        return error
    _note(sides, LinkStatus.ACTIVE, None)
    if sides.link.source_cluster_id is None and sides.owner is None:
        links_by_jobs(sides.destination).syncs.meet(sides.link.name, found.cluster_id)
    return found


def why_left(sides: LinkView) -> str:
    """Return why a link of another workspace is left to it; empty: what it calls its source is the same cluster here.

    Names of clusters are local to a workspace.
    """
    if sides.owner is None:
        return ""
    found = sides.met
    if isinstance(found, ReconcilerError):
        return ""  # The pass says it.
    known, name = sides.link.source_cluster_id, sides.spec.source
    if found is None or (known is not None and found.cluster_id != known):
        return f"cluster {name} is another one here"
    is_copied = any(mirror.source_topic_id is not None for mirror in sides.mirrors)
    return "" if known is not None or is_copied else f"it has not met cluster {name} yet"


def link_status_of(error: ReconcilerError) -> LinkStatus:
    """Return what a link is whose source says this."""
    if isinstance(error, RetryableError) and not isinstance(error, MendFirstError):
        return LinkStatus.UNAVAILABLE
    return LinkStatus.FAILED


def _reached(sides: LinkView, needs: Callable[[str], bool]) -> LinkSource:
    name, known = sides.spec.source, sides.link.source_cluster_id
    found = sides.met
    if isinstance(found, ReconcilerError):
        raise found
    if found is None:  # Perhaps it is not mounted; in any case it may come back.
        raise RetryableError(f"there is no cluster {name} where it should be", hint="Check that its root is there.")
    if known is not None and found.cluster_id != known:
        message = f"at the place of {name} lies cluster {found.cluster_id}; the link was made to {known}"
        hint = f"Correct where {name} is. To follow the other cluster, delete the link and create it again."
        raise UserError(message, hint=hint)
    above = links_by_jobs(sides.source).syncs
    version = above.version()
    return LinkSource(found.cluster_id, version, _offered(sides) if needs(version) else None)


def _offered(sides: LinkView) -> Mapping[str, Offered]:
    """Return what a source offers; what its mirrors follow and does not show is asked for by name: it may be hidden."""
    above = links_by_jobs(sides.source).syncs
    found = above.offered(sides.principal)
    silent = sorted({mirror.source for mirror in sides.live} - found.keys())
    return {**found, **above.offered(sides.principal, silent)} if silent else found


def _verdict(sides: LinkView, error: ReconcilerError) -> tuple[LinkStatus, Trouble]:
    status = link_status_of(error)
    if status is LinkStatus.UNAVAILABLE:
        code = TIMEOUT
    else:
        code = AUTHENTICATION if isinstance(error, NotAuthorizedError | MendFirstError) else MISCONFIGURATION
    return status, Trouble(code, error.message, sides.now_ms)


def _note(sides: LinkView, status: LinkStatus, trouble: Trouble | None) -> None:
    """Write it down where it is news: however often a source does not answer, that is written once."""
    known = sides.link.trouble
    if sides.owner is not None:
        return
    if sides.link.status is status and _told(status, known) == _told(status, trouble):
        return
    links_by_jobs(sides.destination).link_trouble(sides.link.name, status, trouble)


def _told(status: LinkStatus, trouble: Trouble | None) -> tuple[str, ...]:
    if trouble is None:
        return ()
    return (trouble.code, trouble.message) if status is LinkStatus.FAILED else (trouble.code,)


# How long a mirror waits for its source, whoever finds what is wrong with it: a pass over its link, or a round.
#
# What may come back (a topic, the right to read it) is given up once it was gone for longer than the link says; what
# the destination refuses is never given up, for the source still has it; nothing else is waited for.


NOT_READABLE: Final = "AUTHORIZATION_ERROR"
WAITED_FOR: Final = frozenset({SOURCE_TOPIC_MAY_BE_DELETED, NOT_READABLE})
"""What a mirror waits for, and what is over once the source is there again and may be read."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What to make of a trouble: whether the mirror is FAILED by it, and whether there is anything to write down."""

    fails: bool
    is_news: bool


def judged(known: Trouble | None, trouble: Trouble, *, retry_ms: int, now_ms: int) -> Judged:
    """Judge a trouble of a mirror by the one that is `known` of it: however it is put, it is written once."""
    is_known = known is not None and known.code == trouble.code
    since_ms = known.since_ms if known is not None and is_known else now_ms
    if trouble.code == RECORDS_REFUSED:
        return Judged(fails=False, is_news=not is_known)
    is_over = retry_ms != UNLIMITED and now_ms - since_ms > retry_ms
    fails = trouble.code not in WAITED_FOR or is_over
    return Judged(fails, is_news=fails or not is_known)
