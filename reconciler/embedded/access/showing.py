"""Topics as somebody may know them: an error about one names no other that is hidden."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reconciler.embedded.access.operations import Kind, Operation
from reconciler.embedded.catalog.lookups import topic_named

if TYPE_CHECKING:
    from reconciler.embedded.access.permissions import Permissions
    from reconciler.embedded.catalog.entries import TopicEntry
    from reconciler.embedded.catalog.tables import Catalog, Draft


def topic_shown(who: Permissions, catalog: Catalog | Draft, full_name: str) -> TopicEntry:
    """Return a topic that whoever asks may use; what it takes to use it was checked before.

    Raises:
        InvalidNamespaceError: Its namespace does not exist.
        UserError: It does not exist. What is nearly called so is named if it may be described.
    """
    if full_name in catalog.topics or who.is_super_user:
        return topic_named(catalog, full_name)
    known = [name for name in catalog.topics if who.may(catalog, Operation.DESCRIBE, Kind.TOPIC, name)]
    return topic_named(catalog, full_name, known=known)
