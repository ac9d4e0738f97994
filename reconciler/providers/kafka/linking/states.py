"""Links and mirrors as the ledger has them. Pure.

A mirror is kept by the name its broker gives it, with the id of its topic: one that was deleted and made anew under
that name is no mirror. `CREATING` is one whose topic may not be there yet; nobody sees it, and nobody copies to it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from reconciler.errors import UserError
from reconciler.lifecycles.mirror import MirrorStatus
from reconciler.providers.kafka.ledger import LINK, MIRROR, TOPIC, link_key, mirror_key
from reconciler.resources.linkentries import LinkEntry, MirrorEntry, OperationEntry, TroubleEntry
from reconciler.resources.mirrorstates import status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from reconciler.providers.kafka.ledger import Changes, Entries
    from reconciler.resources.mirroring import Trouble
    from reconciler.resources.mirrorstates import Named

CREATING: Final = "CREATING"
_OWN: Final = frozenset({"name", "link", "topic_id", "opening"})


@dataclass(frozen=True, slots=True)
class Kept:
    """A mirror: what is kept of it everywhere, and what a ledger needs beside that.

    `opening`: it was decided that its mirroring is over, and copiers may not be shut out yet; the operation is the one
    that ended so. Whoever comes next shuts them out.
    """

    name: str
    """Its full name, as it was when it was made."""
    link: str
    topic_id: str | None
    entry: MirrorEntry
    opening: OperationEntry | None = None

    @property
    def follows(self) -> bool:
        """Tell whether it is a mirror, not an ordinary topic that was one."""
        return not self.entry.is_stopped or self.opening is not None

    @property
    def operation(self) -> OperationEntry | None:
        """What it goes through; a failover is over for whoever drives operations, and is asked for again."""
        ended = self.opening if self.opening is not None and self.opening.id else None
        return self.entry.operation or ended

    def document(self) -> dict[str, Any]:
        """Return what the ledger keeps."""
        kept = {**self.entry.to_json(), "name": self.name, "link": self.link, "topic_id": self.topic_id}
        return kept if self.opening is None else {**kept, "opening": self.opening.to_json()}


def kept_in(document: Mapping[str, Any]) -> Kept:
    """Read a mirror back."""
    opening = document.get("opening")
    return Kept(
        document["name"],
        document["link"],
        document["topic_id"],
        MirrorEntry.from_json(dict(document)),
        None if opening is None else OperationEntry.from_json(opening),
    )


@dataclass(frozen=True, slots=True)
class States:
    """All links and mirrors of a cluster, mirrors by the names their broker gives them."""

    links: Mapping[str, LinkEntry]
    mirrors: Mapping[str, Kept]

    def found(self, kept: Kept) -> Named | None:
        """Return the link of a mirror with its name; `None`: it is gone."""
        link = self.links.get(kept.link)
        return (kept.link, link) if link is not None and link.id == kept.entry.link_id else None

    def status(self, kept: Kept) -> MirrorStatus:
        """Return what is shown of a mirror."""
        if kept.opening is not None:
            return MirrorStatus.PENDING_STOPPED
        found = self.found(kept)
        return status_of(kept.entry, None if found is None else found[1])

    def link(self, name: str) -> LinkEntry:
        """Return a link.

        Raises:
            UserError: There is none.
        """
        if name not in self.links:
            raise UserError(f"link {name} does not exist", hint="Create it first.")
        return self.links[name]

    def mirror(self, topic: str, full_name: str, topic_id: str | None) -> Kept:
        """Return a mirror, stopped ones too; `topic_id`: of the topic that is there now.

        Raises:
            UserError: It is none.
        """
        kept = self.mirrors.get(topic)
        if kept is None or kept.topic_id is None or kept.topic_id != topic_id:
            raise UserError(f"topic {full_name} is not mirrored", hint="See the mirrors with: reconciler mirror list")
        return kept

    def of(self, link: str) -> Iterator[tuple[str, Kept]]:
        """Yield the mirrors of a link."""
        found = self.links.get(link)
        for topic, kept in sorted(self.mirrors.items()):
            if found is not None and kept.entry.link_id == found.id:
                yield topic, kept

    def live(self, ids: Mapping[str, str]) -> States:
        """Return it with the mirrors whose topics are there, by the ids that topics have now."""
        there = {name: kept for name, kept in self.mirrors.items() if kept.topic_id and ids.get(name) == kept.topic_id}
        return replace(self, mirrors=there)


def states_of(entries: Entries) -> States:
    """Return what a ledger says of links and mirrors.

    Raises:
        UserError: Somebody else wrote into it.
    """
    links: dict[str, LinkEntry] = {}
    mirrors: dict[str, Kept] = {}
    for key, value in entries.items():
        try:
            if key[0] == LINK:
                links[str(key[1])] = LinkEntry.from_json(dict(value))
            elif key[0] == MIRROR:
                mirrors[str(key[1])] = kept_in(value)
        except (KeyError, TypeError, AttributeError) as error:
            message = f"topic {TOPIC} has an entry {list(key)} that is none of ours: {error!r} in it"
            hint = (
                f"Nobody but reconciler may write there. Remove it by a record with the key {list(key)} and no value."
            )
            raise UserError(message, hint=hint) from error
    return States(links, mirrors)


def link_changes(name: str, link: LinkEntry | None) -> Changes:
    """Return what the ledger is to have of a link."""
    return {link_key(name): None if link is None else link.to_json()}


def mirror_changes(topic: str, kept: Kept | None) -> Changes:
    """Return what the ledger is to have of a mirror."""
    return {mirror_key(topic): None if kept is None else kept.document()}


def noted(trouble: Trouble | None, now_ms: int) -> TroubleEntry | None:
    """Return a trouble as it is kept."""
    return None if trouble is None else TroubleEntry(trouble.code, trouble.message, trouble.since_ms or now_ms)
