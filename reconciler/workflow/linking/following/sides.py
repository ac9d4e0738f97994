"""A link with the clusters at both its ends, and what a pass found of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.lifecycles.mirror import LinkStatus, MirrorStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.errors import ReconcilerError
    from reconciler.providers.base import Provider
    from reconciler.resources.mirroring import LinkSeen, MirrorSeen
    from reconciler.resources.mirrorlink import MirrorLinkSpec

_M = MirrorStatus

LIVE = frozenset({_M.ACTIVE, _M.PAUSED, _M.LINK_PAUSED, _M.SOURCE_UNAVAILABLE, _M.LINK_FAILED})
"""States in which a mirror follows its source, or would but for its link or because somebody paused it."""


@dataclass(frozen=True)
class Sides:
    """A link as its destination has it, at `now_ms`."""

    link: LinkSeen
    mirrors: tuple[MirrorSeen, ...]
    destination: Provider
    source: Provider
    now_ms: int

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
