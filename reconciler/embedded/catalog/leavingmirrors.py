"""Which mirrors of a catalog may be deleted: none on its way to another state, none that its link would make again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.catalog.mirroring import link_of
from reconciler.resources import linkrules

if TYPE_CHECKING:
    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft


def check_deletable(catalog: Catalog | Draft, full_name: str, topic: TopicEntry) -> None:
    """Refuse to delete a mirror that cannot be deleted now; every other topic can.

    Raises:
        UserError: It is being promoted, reversed or restored.
        BlockedError: The auto-create filters of its link take it: it would be made again, with all it had.
    """
    if topic.mirror is not None:
        linkrules.check_deletable(full_name, topic.mirror, link_of(catalog, topic.mirror))
