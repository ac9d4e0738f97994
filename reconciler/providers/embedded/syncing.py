"""What links keep in step beside records, on an embedded cluster: a look at its catalog, or one commit of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from reconciler.embedded.linking.following import follow_sources, make_mirrors, meet_source, note_troubles
from reconciler.embedded.linking.grouping import bring_offsets, group_offsets, group_versions
from reconciler.embedded.linking.offering import offered_in
from reconciler.embedded.linking.ruling import bring_rules, rules_in
from reconciler.resources.linkentries import TroubleEntry

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from reconciler.embedded.catalog.tables import Draft
    from reconciler.embedded.cluster import EmbeddedCluster
    from reconciler.errors import ReconcilerError
    from reconciler.resources.mirroring import Trouble
    from reconciler.resources.sourcetopic import SourceTopic
    from reconciler.resources.syncs import AccessRules, Brought, GroupOffsets, Offered

R = TypeVar("R")


@dataclass(frozen=True)
class EmbeddedSyncs:
    """`SyncsOfCluster` over an embedded cluster."""

    cluster: EmbeddedCluster

    def version(self) -> str:
        """Return the last commit of the catalog."""
        return self.cluster.catalog.read().id

    def offered(self, principal: str, only: Collection[str] | None = None) -> Mapping[str, Offered]:
        """Return topics as a link sees them: the catalog alone is read."""
        return offered_in(self.cluster.catalog.read(), principal, only)

    def group_versions(self) -> Mapping[str, str]:
        """Return every group and what changes with it."""
        return group_versions(self.cluster.store)

    def group_offsets(self, groups: Collection[str]) -> Mapping[str, GroupOffsets]:
        """Return where groups go on reading: a GET each."""
        return group_offsets(self.cluster, groups)

    def rules(self) -> AccessRules:
        """Return all access rules: the catalog alone is read."""
        return rules_in(self.cluster.catalog.read())

    def meet(self, link: str, source_cluster_id: str) -> None:
        """Write down which cluster a link was made to."""
        self._commit(f"change link {link}", lambda draft: meet_source(draft, link, source_cluster_id))

    def follow(self, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError]:
        """Bring mirrors to the shape of their sources."""
        if not sources:
            return {}
        return self._commit("change mirrors", lambda draft: follow_sources(draft, sources))

    def note(self, troubles: Mapping[str, Trouble | None], failed: Collection[str] = ()) -> None:
        """Note what is wrong with mirrors."""
        if troubles:
            kept = {name: self._kept(trouble) for name, trouble in troubles.items()}
            self._commit("change mirrors", lambda draft: note_troubles(draft, kept, failed))

    def make_mirrors(self, link: str, sources: Mapping[str, SourceTopic]) -> Mapping[str, ReconcilerError | None]:
        """Make mirrors as auto-create does."""
        if not sources:
            return {}
        new_id, now_ms = self.cluster.fresh_id, self.cluster.now_ms()
        return self._commit(
            f"create mirrors of link {link}",
            lambda draft: make_mirrors(draft, link, sources, new_id=new_id, now_ms=now_ms),
        )

    def bring_offsets(self, groups: Mapping[str, GroupOffsets]) -> Mapping[str, Brought | ReconcilerError]:
        """Set what links brought of groups."""
        self.cluster.permissions.check_super_user("change groups for a link")
        return bring_offsets(self.cluster, groups)

    def bring_rules(self, link: str, rules: AccessRules) -> int:
        """Give mirrors and namespaces the access rules of a source."""
        return self._commit(f"change access rules for link {link}", lambda draft: bring_rules(draft, link, rules))

    def _commit(self, what: str, decide: Callable[[Draft], R]) -> R:
        self.cluster.permissions.check_super_user(what)
        found: list[R] = []

        def decided(draft: Draft) -> None:
            found[:] = [decide(draft)]  # It decides anew where another commit was faster.

        self.cluster.catalog.commit(decided)
        return found[0]

    def _kept(self, trouble: Trouble | None) -> TroubleEntry | None:
        if trouble is None:
            return None
        return TroubleEntry(trouble.code, trouble.message, trouble.since_ms or self.cluster.now_ms())
