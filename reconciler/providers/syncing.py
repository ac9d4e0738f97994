"""What a platform must do for what links keep in step beside records: its own side only, each call whole or not at all.

The first half is asked of the source of a link, the second of its destination. Every call takes everything at once,
so that a link with ten thousand topics costs what a link with one does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from reconciler.errors import ReconcilerError
    from reconciler.resources.mirroring import Trouble
    from reconciler.resources.sourcetopic import SourceTopic
    from reconciler.resources.syncs import AccessRules, Brought, GroupOffsets, Offered


class SyncsOfCluster(Protocol):
    """One cluster, as the source or the destination of links."""

    def version(self) -> str:
        """Return a word that changes whenever anything does but records and groups: while it stays, so does the rest.

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def offered(self, principal: str, only: Collection[str] | None = None) -> Mapping[str, Offered]:
        """Return every topic by full name, or of `only` some, as a link that reads as `principal` sees it: one look.

        Raises:
            RetryableError: The cluster cannot be reached.
        """
        ...

    def group_versions(self) -> Mapping[str, str]:
        """Return every group, and a word that changes whenever it commits anything, in one listing."""
        ...

    def group_offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return where groups go on reading, as they said it, of topics that are there; those that are gone are absent.

        What a link brought counts, too, so that chains of links pass it on.
        """
        ...

    def rules(self) -> AccessRules:
        """Return the access rules of all topics and namespaces, in one look."""
        ...

    def meet(self, link: str, source_cluster_id: str) -> None:
        """Write down which cluster a link was made to; the first one counts."""
        ...

    def follow(self, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError]:
        """Bring partitions and synced configs of mirrors, by full name, to what their sources have.

        Return why some could not. Nothing is written where nothing differs.
        """
        ...

    def note(self, troubles: Mapping[str, Trouble | None], failed: Collection[str] = ()) -> None:
        """Note what is wrong with mirrors, by full name, or (`None`) that it is over; those of `failed` are FAILED."""
        ...

    def make_mirrors(self, link: str, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError | None]:
        """Make mirrors of sources, by full name, as auto-create does, and return those made, and why others were not.

        Left out are names that are taken here, and what the filters of the link, as they are now, do not take.
        """
        ...

    def bring_offsets(self, groups: Mapping[str, GroupOffsets]) -> Mapping[str, Brought | ReconcilerError]:
        """Set where groups go on reading mirrors, never beyond their ends; what a group committed here itself wins.

        A group that reads one of the mirrors here (it committed within 24 hours) is left alone.
        """
        ...

    def bring_rules(self, link: str, rules: AccessRules) -> int:
        """Give mirrors, by the full names of their sources, and namespaces that are here the access rules of a source.

        Those that the link brought before and that are not among them go; all others stay. Return how many places
        changed.
        """
        ...
