"""A link with both clusters: source, errors and due tasks."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
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
from reconciler.providers.protocol import require_job_links
from reconciler.resources.address import Address, address_of
from reconciler.resources.base import UNLIMITED
from reconciler.resources.mirrors import (
    RECORDS_REFUSED,
    SOURCE_TOPIC_MAY_BE_DELETED,
    ObservedLink,
    ObservedMirror,
    OfferedTopic,
    Trouble,
)
from reconciler.runtime.dataclass import dataclass, field

if TYPE_CHECKING:
    from reconciler.providers.protocol import Provider
    from reconciler.resources.inventory import ClusterIdentity
    from reconciler.resources.mirror_link import MirrorLinkSpec
    from reconciler.resources.owners import ResourceOwner


def get_provider(providers: Mapping[str, Provider], cluster: str) -> Provider:
    """Return a cluster's provider."""
    if cluster not in providers:
        message = f"cluster {cluster} is not declared here"
        raise UserError(message, hint="Declare it, or name a state that has it with --state.")
    return providers[cluster]


@dataclass
class SettledGroups:
    """Versions of synced source groups, valid for the mirrors and filters in `of`."""

    of: Hashable = None
    versions: dict[str, str] = field(default_factory=dict)


@dataclass
class LinkMemory:
    """What a process remembers about links between passes."""

    _last_run_ms: dict[tuple[str, str], int] = field(default_factory=dict)
    _groups: dict[str, SettledGroups] = field(default_factory=dict)
    _settled_versions: dict[tuple[str, str], Hashable] = field(default_factory=dict)
    _messages: dict[tuple[str, str], str] = field(default_factory=dict)

    def is_due(self, link_id: str, task: str, interval_ms: int, now_ms: int) -> bool:
        """Return whether a task is due, and if so record its start."""
        last = self._last_run_ms.get((link_id, task))
        is_due = last is None or now_ms < last or (interval_ms != UNLIMITED and now_ms - last >= interval_ms)
        if is_due:
            self._last_run_ms[link_id, task] = now_ms
        return is_due

    def make_due(self, link_id: str, task: str) -> None:
        """Make a failed task due again."""
        self._last_run_ms.pop((link_id, task), None)

    def is_settled(self, link_id: str, task: str, versions: Hashable) -> bool:
        """Return whether a task is complete for these versions of both clusters."""
        return self._settled_versions.get((link_id, task)) == versions

    def record_settled(self, link_id: str, task: str, versions: Hashable) -> None:
        """Record that a task is complete for these versions of both clusters."""
        self._settled_versions[link_id, task] = versions

    def is_new_message(self, link_id: str, task: str, message: str) -> bool:
        """Store a task's error message, empty without error; return whether it changed."""
        is_news = self._messages.get((link_id, task), "") != message
        self._messages[link_id, task] = message
        return is_news

    def get_group_versions(self, link_id: str, of: Hashable) -> dict[str, str]:
        """Return synced group versions; empty after a change of mirrors or filters."""
        known = self._groups.setdefault(link_id, SettledGroups())
        if known.of != of:
            known.of, known.versions = of, {}
        return known.versions


_M = MirrorStatus

LIVE_STATES = frozenset({_M.ACTIVE, _M.PAUSED, _M.LINK_PAUSED, _M.SOURCE_UNAVAILABLE, _M.LINK_FAILED})
"""States of mirrors that follow their sources, or are paused."""


@dataclass(frozen=True)
class LinkView:
    """A link with both clusters and its mirrors, at `now_ms`."""

    link: ObservedLink
    mirrors: tuple[ObservedMirror, ...]
    destination: Provider
    source: Provider
    now_ms: int
    owner: ResourceOwner | None = None
    """Other workspace that owns the link, and records errors."""

    @cached_property
    def source_identity(self) -> ClusterIdentity | ReconcilerError | None:
        """Identity of the source, or the error; `None` if the cluster does not exist."""
        try:
            return self.source.identify()
        except ReconcilerError as error:
            return error

    @property
    def spec(self) -> MirrorLinkSpec:
        """Spec of the link."""
        return self.link.declared.spec

    @property
    def principal(self) -> str:
        """Principal with which the link reads the source."""
        return make_link_principal(self.link.name)

    @property
    def live(self) -> tuple[ObservedMirror, ...]:
        """Mirrors in `LIVE_STATES`, without those in transition."""
        return tuple(mirror for mirror in self.mirrors if mirror.status in LIVE_STATES and mirror.operation is None)


def register_full_names(providers: Mapping[str, Provider], mirrors: Iterable[ObservedMirror]) -> None:
    """Register full names of mirrors and sources, for platforms that store only flat names."""
    named: dict[str, list[Address]] = {}
    for mirror in mirrors:
        named.setdefault(mirror.cluster, []).append(address_of("topic", mirror.cluster, mirror.name))
        named.setdefault(mirror.source_cluster, []).append(address_of("topic", mirror.source_cluster, mirror.source))
    for cluster, addresses in named.items():
        if cluster in providers:
            providers[cluster].learn_names(addresses)


def make_link_principal(link: str) -> str:
    """Return a link's principal on its source."""
    return f"User:link-{link}"


@dataclass(frozen=True, slots=True)
class LinkOutcome:
    """Result of a link's pass, without the record copy."""

    cluster: str
    link: str
    status: LinkStatus
    """Status after contacting the source."""
    done: Mapping[str, int] = field(default_factory=dict)
    """Number of changed mirrors, groups or ACLs, by task."""
    failed: tuple[str, ...] = ()
    drove: tuple[str, ...] = ()
    errors: Mapping[str, ReconcilerError] = field(default_factory=dict)
    """Errors by task, `link`, or full name of a mirror in transition."""
    are_groups_due: bool = False
    left: str = ""
    is_left: bool = False


_CODES: Final[tuple[tuple[type[ReconcilerError], str], ...]] = (
    (InvalidNamespaceError, "InvalidNamespaceError"),
    (QuotaExceededError, "POLICY_VIOLATION_ERROR"),
    (NotAuthorizedError, "AUTHORIZATION_ERROR"),
    (UserError, "INVALID_REQUEST_ERROR"),
)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """Number of changes and first error of a task. `code` is for an error that has no code."""

    count: int = 0
    error: ReconcilerError | None = None
    code: str | None = None
    note: str | None = None


def get_error_code(error: ReconcilerError) -> str:
    """Return an error's code in `mirror errors`."""
    if isinstance(error, SourceChangedError):
        return error.code
    return next((code for kind, code in _CODES if isinstance(error, kind)), "INTERNAL_ERROR")


def summarize_task(count: int, errors: Mapping[str, ReconcilerError]) -> TaskResult:
    """Return a result with the first error and the number of errors."""
    if not errors:
        return TaskResult(count)
    name, error = min(errors.items())
    more = f" (and {len(errors) - 1:,} more)" if len(errors) > 1 else ""
    kind = RetryableError if isinstance(error, RetryableError) else UserError
    return TaskResult(count, kind(f"{name}: {error.message}{more}", hint=error.hint), get_error_code(error))


def record_task_trouble(sides: LinkView, task: str, done: TaskResult) -> None:
    """Record or clear a task's error if changed. Retryable errors are not recorded."""
    if isinstance(done.error, RetryableError) or sides.owner is not None:
        return
    known, trouble = sides.link.tasks.get(task), None
    if done.error is not None:
        trouble = Trouble(done.code or get_error_code(done.error), done.note or done.error.message, sides.now_ms)
    before = None if known is None else (known.code, known.message)
    if before != (None if trouble is None else (trouble.code, trouble.message)):
        require_job_links(sides.destination).record_task_trouble(sides.link.name, task, trouble)


# A link is UNAVAILABLE if its source does not answer, and FAILED if a person must act.


TIMEOUT: Final = "TIMEOUT_ERROR"
AUTHENTICATION: Final = "AUTHENTICATION_ERROR"
MISCONFIGURATION: Final = "MISCONFIGURATION_ERROR"


@dataclass(frozen=True, slots=True)
class LinkSource:
    """A source cluster that answers. `offered` topics are read on request."""

    cluster_id: str
    version: str
    offered: Mapping[str, OfferedTopic] | None


def probe_source(sides: LinkView, needs: Callable[[str], bool]) -> LinkSource | ReconcilerError:
    """Check a link's source, and record the link's status. Return the source or the error.

    Offered topics are read if `needs` is true for the source's version.
    """
    try:
        source = _probe_source(sides, needs)
    except ReconcilerError as error:
        _record_status(sides, *_to_trouble(sides, error))
        return error
    _record_status(sides, LinkStatus.ACTIVE, None)
    if sides.link.source_cluster_id is None and sides.owner is None:
        require_job_links(sides.destination).syncs.record_source_cluster_id(sides.link.name, source.cluster_id)
    return source


def explain_left_to_owner(sides: LinkView) -> str:
    """Explain why only the owner can sync a link; empty if this workspace declares the source cluster."""
    if sides.owner is None:
        return ""
    identity = sides.source_identity
    if isinstance(identity, ReconcilerError):
        return ""
    known, name = sides.link.source_cluster_id, sides.spec.source
    if identity is None or (known is not None and identity.cluster_id != known):
        return f"cluster {name} is another one here"
    is_copied = any(mirror.source_topic_id is not None for mirror in sides.mirrors)
    return "" if known is not None or is_copied else f"it has not met cluster {name} yet"


def choose_link_status(error: ReconcilerError) -> LinkStatus:
    """Return the status of a link whose source has this error."""
    if isinstance(error, RetryableError) and not isinstance(error, MendFirstError):
        return LinkStatus.UNAVAILABLE
    return LinkStatus.FAILED


def _probe_source(sides: LinkView, needs: Callable[[str], bool]) -> LinkSource:
    name, known = sides.spec.source, sides.link.source_cluster_id
    identity = sides.source_identity
    if isinstance(identity, ReconcilerError):
        raise identity
    if identity is None:
        raise RetryableError(
            f"there is no cluster {name} at its declared location", hint="Check that its root exists and is mounted."
        )
    if known is not None and identity.cluster_id != known:
        message = f"cluster {identity.cluster_id} answers as {name}, but the link was created for {known}"
        hint = f"Correct where {name} is. To follow the other cluster, delete the link and create it again."
        raise UserError(message, hint=hint)
    above = require_job_links(sides.source).syncs
    version = above.read_metadata_version()
    return LinkSource(identity.cluster_id, version, _read_offered(sides) if needs(version) else None)


def _read_offered(sides: LinkView) -> Mapping[str, OfferedTopic]:
    above = require_job_links(sides.source).syncs
    offered = above.list_offered_topics(sides.principal)
    silent = sorted({mirror.source for mirror in sides.live} - offered.keys())
    return {**offered, **above.list_offered_topics(sides.principal, silent)} if silent else offered


def _to_trouble(sides: LinkView, error: ReconcilerError) -> tuple[LinkStatus, Trouble]:
    status = choose_link_status(error)
    if status is LinkStatus.UNAVAILABLE:
        code = TIMEOUT
    else:
        code = AUTHENTICATION if isinstance(error, NotAuthorizedError | MendFirstError) else MISCONFIGURATION
    return status, Trouble(code, error.message, sides.now_ms)


def _record_status(sides: LinkView, status: LinkStatus, trouble: Trouble | None) -> None:
    known = sides.link.trouble
    if sides.owner is not None:
        return
    if sides.link.status is status and _make_comparable(status, known) == _make_comparable(status, trouble):
        return
    require_job_links(sides.destination).record_link_trouble(sides.link.name, status, trouble)


def _make_comparable(status: LinkStatus, trouble: Trouble | None) -> tuple[str, ...]:
    if trouble is None:
        return ()
    return (trouble.code, trouble.message) if status is LinkStatus.FAILED else (trouble.code,)


NOT_READABLE: Final = "AUTHORIZATION_ERROR"
PASSING_TROUBLES: Final = frozenset({SOURCE_TOPIC_MAY_BE_DELETED, NOT_READABLE})
"""Errors that end once the source is readable again."""


@dataclass(frozen=True, slots=True)
class TroubleJudgement:
    """Whether an error makes the mirror FAILED, and is to be recorded."""

    fails: bool
    is_news: bool


def judge_trouble(known: Trouble | None, trouble: Trouble, *, retry_ms: int, now_ms: int) -> TroubleJudgement:
    """Judge a mirror's error, given the recorded one or `None`. Each code is recorded once."""
    is_known = known is not None and known.code == trouble.code
    since_ms = known.since_ms if known is not None and is_known else now_ms
    if trouble.code == RECORDS_REFUSED:
        return TroubleJudgement(fails=False, is_news=not is_known)
    is_over = retry_ms != UNLIMITED and now_ms - since_ms > retry_ms
    fails = trouble.code not in PASSING_TROUBLES or is_over
    return TroubleJudgement(fails, is_news=fails or not is_known)
