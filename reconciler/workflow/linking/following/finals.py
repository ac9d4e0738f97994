"""The last sync of a mirror that is promoted, reversed or restored: configs and groups, all of them, whatever is due.

It is what `Driver.sync` is. What it cannot bring keeps the transition from ending, and is told as its error; only a
group that reads the mirror itself is left alone: what it committed here wins anyway.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from reconciler.errors import NotAuthorizedError, UserError
from reconciler.workflow.linking.following.bringing import IN_USE, GroupsRead, brought
from reconciler.workflow.linking.following.sides import principal_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reconciler.providers.base import Provider
    from reconciler.resources.mirroring import MirrorSeen


@dataclass(frozen=True)
class FinalSync:
    """Syncs one mirror after another; groups that many have in common are read once."""

    providers: Mapping[str, Provider]
    _groups: GroupsRead = field(default_factory=GroupsRead)

    def __call__(self, mirror: MirrorSeen) -> None:
        """Bring configs and groups of a mirror to what its source has, for the last time.

        Raises:
            NotAuthorizedError: The link may not read the source.
            SourceChangedError: The source was deleted and made anew.
            UserError: The source is gone, or something cannot be brought: says what.
            RetryableError: One of the two clusters does not answer.
        """
        links, source = self._provider(mirror.cluster).links, self._provider(mirror.source_cluster)
        above, where = source.links.syncs, f"{mirror.source} of cluster {mirror.source_cluster}"
        seen = above.offered(principal_of(mirror.link), [mirror.source]).get(mirror.source)
        if seen is None:
            hint = "Fail over to keep what the mirror has: that needs no source."
            raise UserError(f"the source {where} is gone", hint=hint)
        if not seen.is_readable:
            message = f"an access rule denies reading {where} to {principal_of(mirror.link)}"
            raise NotAuthorizedError(message, hint="Remove the rule there; what is under way goes on then.")
        for error in links.syncs.follow({mirror.name: seen.topic}).values():
            raise error
        link = next((link for link in links.links() if link.name == mirror.link), None)
        if link is None:
            return
        spec = link.declared.spec
        offsets = self._groups.taken(mirror.source_cluster, spec, above)
        done = brought(spec, [mirror], (offsets, links.syncs))
        if done.error is not None and done.code != IN_USE:
            raise done.error

    def _provider(self, name: str) -> Provider:
        found = self.providers.get(name)
        if found is None:
            message = f"cluster {name} is not known here"
            raise UserError(message, hint="Declare it, or name a state that has it with --state.")
        return found
