"""What a link does to all of its mirrors at once: made, brought to their sources' shape, and what is wrong with them.

One commit each, that changes nothing where nothing differs. Pure, over a draft.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from reconciler.embedded.catalog.links import MirrorShape, create_mirror, follow_source
from reconciler.embedded.catalog.lookups import link_named
from reconciler.embedded.catalog.mirroring import set_trouble
from reconciler.errors import ReconcilerError
from reconciler.resources.linkfilters import AUTO_CREATE, filters_of
from reconciler.resources.linkrules import mirror_name
from reconciler.resources.namefilters import is_never_made, takes

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from reconciler.embedded.catalog.tables import Draft
    from reconciler.resources.linkentries import TroubleEntry
    from reconciler.resources.sourcetopic import SourceTopic


def make_mirrors(
    draft: Draft, link_name: str, sources: Mapping[str, SourceTopic], *, new_id: Callable[[], str], now_ms: int
) -> dict[str, ReconcilerError | None]:
    """Make the mirrors that the filters of a link take now; return those made, and why others were not.

    Raises:
        UserError: There is no such link.
    """
    link = link_named(draft, link_name)
    filters = filters_of(link, AUTO_CREATE)
    found: dict[str, ReconcilerError | None] = {}
    for source, of in sorted(sources.items()):
        name = mirror_name(source, link)
        if name in draft.topics or is_never_made(source) or not takes(filters, source):
            continue
        shape = MirrorShape(link=link_name, source=source, is_automatic=True)
        try:
            create_mirror(draft, name, shape, of, topic_id=new_id(), now_ms=now_ms)
        except ReconcilerError as error:
            found[name] = error
        else:
            found[name] = None
    return found


def follow_sources(draft: Draft, sources: Mapping[str, SourceTopic]) -> dict[str, ReconcilerError]:
    """Bring mirrors, by full name, to the shape of their sources; return why some could not."""
    failed: dict[str, ReconcilerError] = {}
    for name, source in sources.items():
        entry = draft.topics.get(name)
        if entry is None or entry.follows is None:
            continue  # It was deleted or stopped meanwhile.
        try:
            follow_source(draft, name, source)
        except ReconcilerError as error:
            failed[name] = error
    return failed


def note_troubles(draft: Draft, troubles: Mapping[str, TroubleEntry | None], failed: Collection[str]) -> None:
    """Note what is wrong with mirrors that are still there."""
    for name, trouble in troubles.items():
        entry = draft.topics.get(name)
        if entry is not None and entry.follows is not None:
            set_trouble(draft, name, trouble, fails=name in failed)


def meet_source(draft: Draft, link_name: str, source_cluster_id: str) -> None:
    """Write down which cluster a link was made to; the first one counts.

    Raises:
        UserError: There is no such link.
    """
    link = link_named(draft, link_name)
    if link.source_cluster_id is None:
        draft.put_link(link_name, replace(link, source_cluster_id=source_cluster_id))
